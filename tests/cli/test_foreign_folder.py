"""A run folder of a stranger: links, pipes and paths in it lead no command to a file outside of it."""

import json
import os
import shutil
from pathlib import Path

import pytest

from slime_core.errors import CheckpointError
from slime_core.run import RunFolder, list_checkpoints, newest_checkpoint, verify
from slime_core.run.checkpoint import MANIFEST, describe_file
from tests.conftest import Project, Slime

SAMPLES, SAVED = "samples/rollout_000000.parquet", "checkpoints/rollout_000002"
READERS = {
    "run.toml": ("why", "diff"),
    "metrics.jsonl": ("why", "diff"),
    "ledger.jsonl": ("ledger", "why", "diff"),
    "spans.jsonl": ("trace", "why"),
    "resumes.jsonl": ("trace",),
    "samples": ("samples", "why", "diff"),
    SAMPLES: ("samples", "why", "diff"),
    "checkpoints": ("checkpoints", "generate"),
    SAVED: ("checkpoints", "generate"),
    f"{SAVED}/manifest.json": ("checkpoints", "generate"),
    f"{SAVED}/state.json": ("checkpoints", "generate"),
    f"{SAVED}/hf": ("checkpoints", "generate"),
    f"{SAVED}/hf/model.safetensors": ("checkpoints", "generate"),
    f"{SAVED}/hf/tokenizer.json": ("checkpoints", "generate"),
    f"{SAVED}/optim": ("checkpoints",),
    "report": ("trace",),
    "report/trace.json": ("trace",),
    "lock": (),
    "logs": (),
}
"""What is planted, and the commands that read or write it; `resume` does so with all."""


@pytest.fixture
def group(project: Project, slime: Slime) -> str:
    """A trained group of a small run, which has only its newest checkpoint."""
    project.write_run(save_keep=1)
    slime.ok("train", "run.toml")
    (project.run / "resumes.jsonl").write_text('{"schema_version":1,"rollout_id":0,"time":1.0}\n')
    (project.run / "report" / "trace.json").write_text("{}")
    return str(slime("ledger", project.run, "--state", "trained").out.split()[0])


def bytes_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.timeout(300)  # a command that waits for a pipe
def test_a_link_or_a_pipe_in_a_run_folder_is_refused_by_name(project: Project, slime: Slime, group: str) -> None:
    outside, whole, run = project.root / "outside", project.root / "whole", project.run
    run.rename(whole)
    wrong: list[tuple[object, ...]] = []
    for name, commands in READERS.items():
        for kind in ("link",) if (whole / name).is_dir() else ("link", "pipe"):
            shutil.rmtree(run, ignore_errors=True)
            shutil.rmtree(outside, ignore_errors=True)
            shutil.copytree(whole, run)
            outside.mkdir()
            (run / name).rename(outside / "kept")
            if kind == "link":
                (run / name).symlink_to(outside / "kept")
            else:
                os.mkfifo(run / name)
            before = bytes_below(outside)
            typed = {
                "samples": ("samples", run, "--rollout", 0),
                "ledger": ("ledger", run),
                "why": ("why", run, group),
                "diff": ("diff", run, whole),
                "trace": ("trace", run),
                "checkpoints": ("checkpoints", run),
                "generate": ("generate", run, "x"),
                "resume": ("resume", run),
            }
            for command in (*commands, "resume"):
                ran = slime(*typed[command])
                refused = ran.code == (1 if command == "checkpoints" else 2)
                if not refused or str(run / name) not in ran.out + ran.err:
                    wrong.append((command, kind, name, ran.code, ran.out, ran.err))
            if bytes_below(outside) != before:
                wrong.append(("written", kind, name))
    assert not wrong, "\n".join(map(str, wrong))


def test_a_path_of_a_manifest_that_leads_out_of_its_checkpoint_is_refused(project: Project, group: str) -> None:
    saved, secret = list_checkpoints(project.run / "checkpoints")[-1], project.root / "secret"
    secret.write_text("secret")
    manifest = json.loads((saved / MANIFEST).read_text())
    for name in (str(secret), os.path.relpath(secret, saved), "hf/../../../secret", "", ".", "a\0b"):
        files = {**manifest["files"], name: describe_file(secret).model_dump()}
        (saved / MANIFEST).write_text(json.dumps({**manifest, "files": files}))
        with pytest.raises(CheckpointError, match="outside itself"):
            verify(saved, contents=False)


def test_the_run_folder_itself_may_be_a_link_and_links_within_it_stay(
    project: Project, slime: Slime, group: str
) -> None:
    disk = project.root / "disk"
    (project.root / "runs").rename(disk)
    (project.root / "runs").symlink_to(disk)
    (project.run / "latest").symlink_to("checkpoints/rollout_000002")
    for arguments in (("samples", project.run), ("why", project.run, group), ("checkpoints", project.run, "--verify")):
        assert slime(*arguments).code == 0
    assert newest_checkpoint(project.run / "checkpoints", print) is not None
    with RunFolder.locked(project.run):
        pass
