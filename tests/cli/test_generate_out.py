"""`slime generate --out`: what is there stays until better is complete, and what was made is never lost."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import Project, Slime
from tests.tables import table

OLD = '{"response": "an answer of yesterday"}\n'


@pytest.fixture
def prompts(project: Project) -> Path:
    return project.write_rows("p.jsonl", [{"input": f"{number}+1?"} for number in range(3)])  # type: ignore[no-any-return]


@pytest.mark.parametrize("how", ["itself", "symlink", "hard link", "of a slice", "the part"])
def test_the_prompts_are_not_written_over(project: Project, slime: Slime, prompts: Path, how: str) -> None:
    read, out = "p.jsonl", "p.jsonl"
    if how == "symlink":
        Path(out := "link.jsonl").symlink_to(prompts)
    elif how == "hard link":
        Path(out := "link.jsonl").hardlink_to(prompts)
    elif how == "of a slice":
        read = "p.jsonl@[0:2]"
    elif how == "the part":
        prompts.rename(read := "p.jsonl.part")
    text = Path("p.jsonl.part" if how == "the part" else "p.jsonl").read_text()
    assert "are the same file" in slime.refused("generate", project.model, "--prompt-data", read, "--out", out)
    assert Path("p.jsonl.part" if how == "the part" else "p.jsonl").read_text() == text


def test_new_answers_replace_the_old_ones_through_a_link(project: Project, slime: Slime, prompts: Path) -> None:
    Path("real.jsonl").write_text(OLD)
    Path("real.jsonl").chmod(0o600)
    Path("o.jsonl").symlink_to("real.jsonl")
    slime.ok("generate", project.model, "--prompt-data", prompts, "--max-new-tokens", 3, "--out", "o.jsonl")
    assert Path("o.jsonl").is_symlink()
    assert Path("real.jsonl").stat().st_mode & 0o777 == 0o600
    assert [json.loads(line)["prompt"] for line in Path("real.jsonl").read_text().splitlines()] == [
        "0+1?",
        "1+1?",
        "2+1?",
    ]
    assert not Path("real.jsonl.part").exists()


@table("out", ["-", "/dev/stdout"])
def test_the_standard_output_takes_json_lines_alone(project: Project, prompts: Path, out: str) -> None:
    flags = ["--prompt-data", str(prompts), "--max-new-tokens", "3", "--out", out]
    Path("all").write_text(OLD)
    with Path("all").open("a") as stream:
        subprocess.run(
            [sys.executable, "-m", "slime_core", "generate", str(project.model), *flags], stdout=stream, check=True
        )
    assert [json.loads(line)["response"] for line in Path("all").read_text().splitlines()][:1] == [
        "an answer of yesterday"
    ]
    assert len(Path("all").read_text().splitlines()) == 4


def test_a_ctrl_c_keeps_the_lines_made_so_far_beside_the_old_file(project: Project) -> None:
    shutil.copytree(project.model, "long")
    config = json.loads(Path("long/config.json").read_text())
    Path("long/config.json").write_text(json.dumps(config | {"max_position_embeddings": 9000}))
    Path("o.jsonl").write_text(OLD)
    # A worker that may hold one long text at a time answers one after another.
    flags = ["--max-new-tokens", "400", "--ignore-eos", "--n-samples-per-prompt", "200", "--out", "o.jsonl"]
    engine = ["--set", "workers=1", "--set", "max_total_tokens=500"]
    command = [sys.executable, "-m", "slime_core", "generate", "long", "abc", *flags, *engine]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    part = Path("o.jsonl.part")
    while running.poll() is None and not (part.exists() and part.read_text().count("\n") >= 2):
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    _, err = running.communicate()
    assert running.returncode == 130, err
    lines = part.read_text().splitlines()
    assert f"not complete: the first {len(lines)} responses are in {part.resolve()}" in err
    assert all(len(json.loads(line)["tokens"]) == 400 for line in lines)
    assert 2 <= len(lines) < 200
    assert Path("o.jsonl").read_text() == OLD


@pytest.mark.parametrize("tiny_disk", ["16k"], indirect=True)
def test_a_full_disk_is_said_and_leaves_the_old_file(project: Project, slime: Slime, tiny_disk: Path) -> None:
    out = tiny_disk / "o.jsonl"
    out.write_text(OLD)
    flags = ["--n-samples-per-prompt", 40, "--max-new-tokens", 40, "--ignore-eos", "--out", out]
    assert f"cannot write {out}.part: No space left on device" in slime.refused(
        "generate", project.model, "abc", *flags
    )
    assert out.read_text() == OLD
