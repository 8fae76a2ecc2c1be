"""`slime agent prove MODEL`: which turns of a model's chat template go on token for token, and what reads its calls.

It runs what a run runs: the bridge's own proofs, and the search for a parser.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from slime_agent_openai.bridge import WHY_A_TEMPLATE, Bridge, Kind
from slime_agent_openai.message import Message, Role
from slime_agent_openai.parsers.fitting import fitting
from slime_agent_openai.parsers.registry import families, there_are
from slime_core.data import HfTokenizer
from slime_core.errors import ModelError

ANSWERS = (("words", 0, True), ("a call", 1, False), ("words and a call", 1, True), ("calls", 2, False))
"""What the model said: its name, how many calls, whether there are words."""
AFTER_WORDS: Sequence[tuple[Role, ...]] = ((Role.USER,), (Role.SYSTEM, Role.USER))
AFTER_CALLS: Sequence[tuple[Role, ...]] = ((Role.TOOL,), (Role.TOOL, Role.USER))
"""Who speaks next."""


@click.command()
@click.argument("model", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def prove(model: Path, as_json: bool) -> int:
    """Show which turns of the model in folder MODEL, or of a run's newest one, are trained without a fork.

    A turn that is proved goes on from exactly what the engine saw: one sample a conversation. Where the chat template
    changes what came before, the history is written anew, which is as exact and costs a sample. Ends with 1 where
    some turn is not proved or no parser reads the model's calls.
    """
    tokenizer = HfTokenizer.load(_model_in(model))
    bridge = Bridge(tokenizer)
    try:
        bridge.whole([Message(Role.USER, "Hello.")])
    except ModelError as error:
        raise ModelError(f"{error}; {WHY_A_TEMPLATE}") from None
    rows = [(_called(answer, kind.tail, tools=kind.tools), bridge.proved(kind) is not None) for answer, kind in kinds()]
    family = fitting(tokenizer, families().values())
    if as_json:
        turns = [{"turn": name, "proved": proved} for name, proved in rows]
        click.echo(json.dumps({"model": str(model), "turns": turns, "parser": family.name if family else None}))
    else:
        _print(rows, family.name if family else None)
    return 0 if family is not None and all(proved for _, proved in rows) else 1


def _model_in(folder: Path) -> Path:
    """The folder itself, or the newest model of a run folder."""
    saved = sorted(folder.glob("checkpoints/*/hf/config.json"))
    return saved[-1].parent if saved else folder


def kinds() -> list[tuple[str, Kind]]:
    """Every kind of turn that is shown, with what the answer before it is called."""
    return [
        (name, Kind(calls, speaks, _tail(tail, calls), tools))
        for name, calls, speaks in ANSWERS
        for tail in (AFTER_CALLS if calls else AFTER_WORDS)
        for tools in ((True,) if calls else (False, True))
    ]


def _tail(tail: tuple[Role, ...], calls: int) -> tuple[Role, ...]:
    """A result for each call."""
    return (Role.TOOL,) * (calls - 1) + tail if calls else tail


def _called(answer: str, tail: Sequence[Role], *, tools: bool) -> str:
    offered = ", tools offered" if tools and not answer.endswith(("call", "calls")) else ""
    return f"{answer}, then {' and '.join(role.value for role in tail)}{offered}"


def _print(rows: Sequence[tuple[str, bool]], parser: str | None) -> None:
    width = max(len(name) for name, _ in rows)
    for name, proved in rows:
        said = click.style("goes on token for token", fg="green") if proved else click.style("a fork", fg="yellow")
        click.echo(f"  {name:{width}}  {said}")
    done = sum(proved for _, proved in rows)
    click.echo(f"{done} of {len(rows)} kinds of turn go on from what the engine saw; each of the others is a fork.")
    if parser is None:
        text = (
            "no parser reads the calls that this template writes; if the model writes them otherwise, name the parser: "
        )
        click.echo(click.style(f'{text}parser = "hermes". {there_are()}', fg="yellow"))
    else:
        click.echo(f"calls of tools are read by the parser {parser!r}")
