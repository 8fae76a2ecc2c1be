"""`slime reward try`: scores the samples of a file like a run, and prints each verdict."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import click

from slime_core.catalog import Catalog, RegisteredChoice
from slime_core.cli import Commands, LazyGroup
from slime_core.cli.plugins import discover, plugin_options
from slime_core.cli.run_options import in_tables, split_settings
from slime_core.config import read_settings
from slime_core.errors import ConfigError, DataError, UnknownName, last_of, printable
from slime_core.outputs import refuse_occupied
from slime_core.roles import Settings
from slime_core.sample import Json
from slime_core.score import NotApplicable, Score, Unscored
from slime_core.secrets import REDACTOR
from slime_testing.cli.reward_trial import Answer, Keys, SampleRow, Summary, Trial, read_sample_rows, summarize

SHOWN = 60
"""Characters of a response to show."""


class TryCommand(click.Command):
    """Accepts settings of the reward, `--reward.NAME.KEY VALUE`, which are no click options."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Remove the reward's settings, and let click parse the rest."""
        rest, ctx.obj = split_settings(args)
        return super().parse_args(ctx, rest)


@click.command("try", cls=TryCommand)
@click.argument("name")
@click.option(
    "--data", required=True, type=click.Path(path_type=Path), help="Samples: .jsonl or .parquet, or FILE@[a:b]."
)
@click.option("--prompt-key", default="prompt", show_default=True, help="Column of the prompt; optional.")
@click.option("--response-key", default="response", show_default=True, help="Column of the response.")
@click.option("--label-key", help="Column of the gold answer.  [default: label, if present]")
@click.option("--metadata-key", default="metadata", show_default=True, help="Column of a mapping; optional.")
@click.option("--group-key", help="For a group reward: column whose equal values form a group.")
@click.option("--limit", type=click.IntRange(min=1), help="Score only the first rows.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the rows with their scores to this .jsonl file.")
@plugin_options
@click.pass_context
def try_command(
    ctx: click.Context,
    name: str,
    data: Path,
    prompt_key: str,
    response_key: str,
    label_key: str | None,
    metadata_key: str,
    group_key: str | None,
    limit: int | None,
    as_json: bool,
    out: Path | None,
) -> int:
    """Score the samples of a file with the reward NAME, without training. Exit code 1 if a call fails.

    Calls have the isolation and limits of a run. Files in samples/ of a run folder can be scored unchanged.

    \b
    slime reward try math --data runs/first/samples/rollout_000003.parquet
    slime reward try ./my.py:score --data rows.jsonl --response-key output --label-key answer
    slime reward try ranking --data rows.jsonl --group-key group --group-reward.ranking.top 2
    """  # noqa: D301  # \b keeps click from filling the lines below it
    if out is not None:
        refuse_occupied(f"--out {out}", out)
    keys = Keys(prompt_key, response_key, label_key, metadata_key, group_key)
    rows = read_sample_rows(data, keys, limit)
    catalog = discover(ctx)
    registered = _find(catalog, name, grouped=group_key is not None)
    trial = Trial(registered, _settings(registered, name, in_tables(ctx.obj, catalog)), catalog, name)
    answers = asyncio.run(_score(trial, rows, quiet=as_json))
    summary = summarize(answers, trial.calls)
    if out is not None:
        _write(out, answers)
    if as_json:
        click.echo(json.dumps(_as_plain_data(registered, answers, summary), indent=2, ensure_ascii=False))
    else:
        click.echo()
        for line in summary.lines():
            click.echo(line)
        if out is not None:
            click.echo(f"written: {out}")
    return 1 if summary.errors or summary.timeouts else 0


def _find(catalog: Catalog, name: str, *, grouped: bool) -> RegisteredChoice:
    role, other = ("group_reward", "reward") if grouped else ("reward", "group_reward")
    try:
        return catalog.find(role, name)
    except UnknownName:
        if not any(name in (each.qualified, each.spec.name) for each in catalog.choices(other).values()):
            raise
    advice = "omit --group-key" if grouped else "add --group-key COLUMN, whose equal values form a group"
    raise ConfigError(f"{name!r} is a {other.replace('_', ' ')}: {advice}")


def _settings(registered: RegisteredChoice, name: str, given: Mapping[str, Json]) -> Settings:
    role = registered.spec.role
    section: dict[str, Json] = {}
    for its_role, names in given.items():
        for its_name, values in names.items() if isinstance(names, dict) else ():
            if its_role != role or its_name not in (name, registered.qualified, registered.spec.name):
                flag = role.replace("_", "-")
                raise ConfigError(f"--{its_role}.{its_name}.* has no effect here; write --{flag}.{name}.KEY VALUE")
            section.update(values if isinstance(values, dict) else {})
    return read_settings(role, name, registered.spec, section)


async def _score(trial: Trial, rows: list[SampleRow], *, quiet: bool) -> list[Answer]:
    answers = []
    async for answer in trial.score(rows):
        answers.append(answer)
        if not quiet:
            _show(answer)
    return answers


def _show(answer: Answer) -> None:
    row = answer.row
    shown = last_of(row.sample.response, SHOWN)
    verdict, colour = _describe(answer)
    text = click.style(printable(verdict), fg=colour)
    click.echo(f"{row.number:5}  {text}  {click.style(shown, dim=True)}".rstrip())
    if isinstance(answer.verdict, Unscored) and answer.verdict.detail:
        for line in (f"{row.where}:", *answer.verdict.detail.rstrip().splitlines()):
            click.echo(f"         {printable(line)}", err=True)


def _describe(answer: Answer) -> tuple[str, str | None]:
    match answer.verdict:
        case Score(value=value, components=components):
            return "  ".join([f"{value:8.4f}", *(f"{name}={part:.4g}" for name, part in components.items())]), "green"
        case Unscored(reason=reason):
            return f"unscored: {reason}", "red"
        case NotApplicable():
            return "not applicable", "yellow"
    return f"not scored: {answer.row.sample.status.value}", "yellow"


def _outcome(answer: Answer) -> dict[str, Json]:
    match answer.verdict:
        case Score(value=value, components=components):
            return {"reward": value, "components": dict(components), "outcome": "scored", "reason": "", "detail": ""}
        case Unscored(reason=reason, detail=detail):
            return {"reward": None, "components": {}, "outcome": "unscored", "reason": reason, "detail": detail}
        case NotApplicable():
            return {"reward": None, "components": {}, "outcome": "not_applicable", "reason": "", "detail": ""}
    status = answer.row.sample.status.value
    return {"reward": None, "components": {}, "outcome": "unfinished", "reason": status, "detail": ""}


def _as_plain_data(registered: RegisteredChoice, answers: list[Answer], summary: Summary) -> dict[str, Json]:
    rows: list[Json] = [{"row": each.row.number, "where": each.row.where, **_outcome(each)} for each in answers]
    return {
        "schema_version": 1,
        "role": registered.spec.role,
        "choice": registered.qualified,
        "rows": rows,
        "summary": summary.to_dict(),
    }


def _write(out: Path, answers: list[Answer]) -> None:
    lines = (json.dumps({**each.row.values, **_outcome(each)}, ensure_ascii=False) + "\n" for each in answers)
    try:
        out.write_text(REDACTOR.redact("".join(lines)), encoding="utf-8", errors="backslashreplace", newline="\n")
    except OSError as error:
        raise DataError(f"cannot write {out}: {error.strerror}") from None


COMMANDS: Commands = {
    "try": ("slime_testing.cli.reward:try_command", "Score the samples of a file, without training."),
}


@click.group(cls=LazyGroup, known=COMMANDS)
def reward() -> None:
    """Score samples without training."""


__all__ = ["COMMANDS", "reward"]
