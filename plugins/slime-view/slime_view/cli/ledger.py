"""`slime ledger`: the outcome of every group of a run, and whether the accounts balance."""

import json
from pathlib import Path

import click

from slime_core.errors import ConfigError, printable
from slime_core.run import GroupState
from slime_core.sample import Json
from slime_view.ledger_view import LedgerView

UNBALANCED = 1
MOST_PROBLEMS = 20
_STATES = [state.value for state in GroupState]


@click.command(short_help="Show the states of a run's groups.")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--state", type=click.Choice(_STATES), help="List the groups in this state.")
@click.option("--group", "group_id", metavar="ID", help="Show every move of one group, source:eEPOCH:rROW:dDRAW.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def ledger(run: Path, state: str | None, group_id: str | None, as_json: bool) -> int:
    """Show the outcome of the groups of the run in RUN; the exit code is 1 if the accounts do not balance.

    \b
    slime ledger runs/first
    slime ledger runs/first --state buffered
    slime ledger runs/first --group train.jsonl:e0:r17:d17

    Works while the run is active, and after a crash. Except for uses, counts are by group: a group that was trained on
    and waits for another use is buffered.
    """  # noqa: D301  # \b keeps click from filling the lines below it
    if state and group_id:
        raise ConfigError("--state and --group exclude each other: give one")
    view = LedgerView.of(run)
    if group_id:
        return _show_history(view, group_id, as_json)
    if state:
        return _show_groups(view, GroupState(state), as_json)
    if as_json:
        click.echo(json.dumps(_as_plain_data(view), indent=2))
    else:
        _show(view)
    return UNBALANCED if view.totals.problems else 0


def _show_history(view: LedgerView, group_id: str, as_json: bool) -> int:
    lines = view.history(group_id)
    if not lines:
        raise ConfigError(
            f"{view.path} has no group {group_id!r}: groups are named source:eEPOCH:rROW:dDRAW, "
            "as in `slime ledger RUN --state trained`"
        )
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "id": group_id, "moves": [dict(line) for line in lines]}, indent=2))
        return 0
    for line in lines:
        about = f"use {line['use']}" if "use" in line else str(line.get("reason", ""))
        click.echo(f"rollout {line['rollout_id']!s:<6} {line['state']:<9} {printable(about)}".rstrip())
    return 0


def _show_groups(view: LedgerView, state: GroupState, as_json: bool) -> int:
    found = view.groups(state)
    if as_json:
        groups: list[Json] = [{"id": str(group_id), "uses": uses} for group_id, uses in found]
        click.echo(json.dumps({"schema_version": 1, "state": state.value, "groups": groups}, indent=2))
        return 0
    for group_id, uses in found:
        name = printable(str(group_id))
        click.echo(f"{name}  used {uses} times" if uses > 1 else name)
    return 0


def _as_plain_data(view: LedgerView) -> dict[str, Json]:
    totals, saved = view.totals, dict[str, Json]()
    if view.checkpoint is not None:
        states: dict[str, Json] = dict(totals.saved)
        saved = {"name": view.checkpoint.path.name, "bytes": view.offset, "states": states}
    return {
        "schema_version": 1,
        "ledger": str(view.path),
        "groups": totals.accounts.recorded["drawn"],
        "states": dict(totals.accounts.counts()),
        "uses": {"total": totals.accounts.recorded["trained"], "allowed": totals.accounts.max_uses},
        "reasons": dict(totals.reasons.most_common()),
        "checkpoint": saved or None,
        "moves_since": totals.moves_since,
        "problems": list(totals.problems),
    }


def _show(view: LedgerView) -> None:
    totals, accounts, problems = view.totals, view.totals.accounts, view.totals.problems
    counts = "  ".join(f"{name} {count:,}" for name, count in accounts.counts().items())
    click.echo(f"groups   {accounts.recorded['drawn']:,}: {counts}")
    click.echo(f"uses     {accounts.recorded['trained']:,}, at most {accounts.max_uses} a group")
    for place, (reason, count) in enumerate(totals.reasons.most_common()):
        click.echo(f"{'' if place else 'dropped':<8} {count:>8,}  {printable(reason)}")
    if view.checkpoint is None:
        click.echo("saved    nothing yet")
    else:
        counts = "  ".join(f"{name} {count:,}" for name, count in totals.saved.items() if count)
        click.echo(f"saved    {view.checkpoint.path.name}: {counts or 'no group yet'}")
        click.echo(f"since    {totals.moves_since:,} moves, which a resume makes again")
    for problem in problems[:MOST_PROBLEMS]:
        click.echo(f"{click.style('wrong', fg='red')}    {printable(problem)}")
    if len(problems) > MOST_PROBLEMS:
        click.echo(f"         and {len(problems) - MOST_PROBLEMS:,} more")
    if not problems:
        click.echo(f"{click.style('balanced', fg='green')} every move is one that its group could make")
