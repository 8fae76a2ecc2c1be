"""Flags of a run: how each is typed, and what its value is."""

from pathlib import Path

import click
import pytest

from slime_core.cli.run_options import RunCommand, RunInput
from slime_core.errors import ConfigError
from tests.conftest import Project, Slime
from tests.tables import table


@click.command(cls=RunCommand)
@click.argument("run_file", required=False, type=click.Path(path_type=Path))
@click.option("--out")
@click.pass_context
def given(ctx: click.Context, run_file: Path | None, out: str | None) -> RunInput:
    assert isinstance(ctx.obj, RunInput)
    return ctx.obj


def flags(*arguments: str) -> object:
    read: RunInput = given.main(list(arguments), standalone_mode=False)
    return read.flags


@table(
    "arguments, expected",
    [
        ("--lr 1e-5", {"lr": "1e-5"}),
        ("--lr=1e-5 --lr 2", {"lr": "2"}),
        ("--min-lr -1", {"min_lr": "-1"}),
        ("--bf16 x.toml", {"bf16": True}),
        ("--no-bf16", {"bf16": False}),
        ("--bf16 false", {"bf16": False}),
        ("--bf16=True --out x", {"bf16": True}),
        ("--prompt-data a --prompt-data b", {"prompt_data": ["a", "b"]}),
        ("--rollout-stop a", {"rollout_stop": ["a"]}),
        ("--eval-prompt-data a x --eval-prompt-data b y", {"eval_prompt_data": {"a": "x", "b": "y"}}),
        ('--apply-chat-template-kwargs {"k":1}', {"apply_chat_template_kwargs": {"k": 1}}),
        ("--reward a=0.5 --reward b", {"reward": {"use": {"a": 0.5, "b": 1.0}}}),
        ("--advantage-estimator gspo", {"advantage_estimator": "gspo"}),
        ("--lora-rank 8", {"lora_rank": 8}),
        ("--lora-target-modules q_proj --lora-target-modules v_proj", {"lora_target_modules": ["q_proj", "v_proj"]}),
        ("--use-tis --rm-type math", {"use_tis": True, "rm_type": "math"}),
        ("--trainer.local.lora-rank 8 --lr 1", {"trainer": {"local": {"lora_rank": 8}}, "lr": "1"}),
        ("--trainer.local.a=True --trainer.local.b", {"trainer": {"local": {"a": True, "b": True}}}),
        ("--group-filter.f-g.some-key [1]", {"group_filter": {"f-g": {"some_key": [1]}}}),
        ("--reward../my.py:fn.k x=y", {"reward": {"./my.py:fn": {"k": "x=y"}}}),
        ("--engine.my_module.Engine.k 1", {"engine": {"my_module.Engine": {"k": 1}}}),
        (
            "--engine.sglang.router.args.k 3 --engine.sglang.gpus 2",
            {"engine": {"sglang": {"router": {"args": {"k": 3}}, "gpus": 2}}},
        ),
        (
            "--engine.slime-engine-sglang/sglang.server.k 1",
            {"engine": {"slime-engine-sglang/sglang": {"server": {"k": 1}}}},
        ),
    ],
)
def test_flags_are_keys_and_values(arguments: str, expected: object) -> None:
    assert flags(*arguments.split()) == expected


@table(
    "arguments, message",
    [
        ("--lr", "Option '--lr' requires an argument"),
        ("--eval-prompt-data a", "Option '--eval-prompt-data' requires 2 arguments"),
        ("--lrr 1", "No such option '--lrr'. Did you mean '--lr'?"),
        ("--learning-rate 1", "No such option '--learning-rate'. Did you mean '--lr'?"),
        ("--bf16=maybe", "--bf16=maybe: it is true or false, write --bf16 or --no-bf16"),
        ("--reward a --reward a", "--reward names 'a' twice"),
        ("--reward a=x", "--reward a=x: the weight after '=' must be a number"),
        ("--nothing.x 1", "--nothing.x: settings are written --ROLE.NAME.KEY VALUE"),
    ],
)
def test_what_cannot_be_read_is_refused(arguments: str, message: str) -> None:
    with pytest.raises((click.UsageError, ConfigError)) as raised:
        flags(*arguments.split())
    assert message in str(raised.value.message if isinstance(raised.value, click.UsageError) else raised.value)


def test_the_run_file_is_read_once(project: Project, slime: Slime, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    read = Path.open

    def counting(self: Path, mode: str = "r", **options: object) -> object:
        opened.append(self.name)
        return read(self, mode, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(Path, "open", counting)
    assert slime("plan", "run.toml", "--no-data", "--lr", "1e-5").code == 0
    assert opened.count("run.toml") == 1


def test_the_plan_notes_foreign_names(project: Project, slime: Slime) -> None:
    (project.root / "run.toml").unlink(missing_ok=True)
    path = project.write_run(correction={"use": []})
    ran = slime.ok("plan", path, "--no-data", "--use-tis", "--train-backend=local")
    assert "use_tis is slime's: correction.use = 'tis'" in ran.out
    assert "train_backend is slime's: trainer.use = 'local'" in ran.out
