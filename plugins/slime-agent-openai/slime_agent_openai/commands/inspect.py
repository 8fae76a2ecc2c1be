"""`slime agent show RUN` prints a rollout's conversations; `slime agent prove MODEL` checks a chat template.

`prove` runs the same code as training: the bridge's proofs and the search for a parser.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import click

from slime_agent_openai.bridge import NEEDS_TEMPLATE, Bridge, Kind
from slime_agent_openai.conversations import Execution, Span, SpanKind, executions_of, page
from slime_agent_openai.message import Message, Role
from slime_agent_openai.parsers.registry import families, find_family, list_parsers
from slime_core.config import read_run_file
from slime_core.data import HfTokenizer
from slime_core.errors import ModelError, RunFolderError, one_line, printable
from slime_core.outputs import nofollow, refuse_occupied
from slime_core.roles import Tokenizer
from slime_core.rollout import main_of
from slime_view.samples import Shard, list_shards

SHOWN = 400  # Characters of a span shown in the terminal


@click.command()
@click.argument("run", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--rollout", type=click.IntRange(min=0), help="Number of the rollout.  [default: the newest]")
@click.option("--limit", type=click.IntRange(min=1), default=64, show_default=True, help="Most executions to show.")
@click.option("--model", type=click.Path(path_type=Path), help="Folder of the tokenizer.  [default: the run's model]")
@click.option("--html", "as_html", is_flag=True, help="Write an HTML page instead, to RUN/report/agents.html or --out.")
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Path of the HTML page.")
def show(run: Path, rollout: int | None, limit: int, model: Path | None, as_html: bool, out: Path | None) -> None:
    """Show a rollout's conversations from the run folder RUN: turns, tools, branches, and which tokens are trained on.

    \b
    slime agent show runs/first
    slime agent show runs/first --rollout 3 --html --out page.html
    """  # noqa: D301  # \b keeps click from filling the lines below it
    if out is not None:
        refuse_occupied(f"--out {out}", out)
    shard = _shard(run, rollout)
    executions = list(islice(_executions(shard), limit))
    tokenizer = _tokenizer(run, model)
    title = f"{run.name}, rollout {shard.rollout_id}"
    if not as_html and out is None:
        for execution in executions:
            click.echo("\n".join(_lines(execution, tokenizer)))
        return
    path = out or nofollow(run / "report" / "agents.html", 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(title, executions, tokenizer), "utf-8")
    click.echo(f"{len(executions)} executions: {path}")


def _shard(run: Path, number: int | None) -> Shard:
    shards = [Shard(path) for path in list_shards(run / "samples")]
    if not shards:
        raise RunFolderError(f"{run / 'samples'} has no rollout yet; each is written when it ends. {_advice(run)}")
    if number is None:
        return shards[-1]
    found = next((shard for shard in shards if shard.rollout_id == number), None)
    if found is None:
        there = f"{shards[0].rollout_id} to {shards[-1].rollout_id}"
        raise RunFolderError(f"{run / 'samples'} has no rollout {number}; it has {there}")
    return found


def _advice(run: Path) -> str:
    if not (run / "run.toml").is_file():
        return "RUN must be a run folder: the path that slime train got as --save."
    return (
        "If the run ended because too many samples failed, train again with --max-error-rate 1. The run then keeps "
        "failed samples, and this command shows why each one failed."
    )


def _executions(shard: Shard) -> Iterator[Execution]:
    generated = shard.groups()
    yield from executions_of(generated.kept)
    for group in generated.dropped:
        yield from executions_of([group], generated.reasons[group.id])
    yield from executions_of(generated.failed, "failed; its group continued without it")


def _tokenizer(run: Path, model: Path | None) -> Tokenizer | None:
    if model is not None:
        return HfTokenizer.load(model)
    run_file = nofollow(run / "run.toml")
    if not run_file.is_file():
        raise RunFolderError(f"{run} is not a run folder: it has no run.toml")
    model_folder = Path(str(read_run_file(run_file).get("hf_checkpoint")))
    try:
        return HfTokenizer.load(model_folder)
    except ModelError as error:
        click.echo(f"no tokenizer, so tokens are shown as ids: {printable(str(error))}. Pass --model DIR", err=True)
        return None


def _lines(execution: Execution, tokenizer: Tokenizer | None) -> Iterator[str]:
    main = main_of(execution.samples)
    dropped = click.style(f"  dropped: {one_line(execution.drop_reason)}", fg="yellow") if execution.drop_reason else ""
    count = f"{len(execution.samples)} samples" if len(execution.samples) > 1 else "1 sample"
    reward = "no reward" if main.reward is None else f"reward {main.reward}"
    why = f" ({one_line(main.failure_reason)})" if main.failure_reason else ""
    name = click.style(f"{one_line(str(execution.group))} #{main.index}", bold=True)
    yield f"{name}  {reward}  {main.status.value}{why}  {count}{dropped}"
    for line in str(main.metadata.get("failure_detail", "")).splitlines():
        yield click.style(f"  {printable(line)}", fg="yellow")
    for span in execution.walk():
        yield from _span_lines(span, tokenizer)
    yield ""


def _span_lines(span: Span, tokenizer: Tokenizer | None) -> Iterator[str]:
    indent = "  " * (span.depth + 1)
    ids = [token.id for token in span.tokens]
    text = " ".join(map(str, ids)) if tokenizer is None else tokenizer.decode(ids, skip_special_tokens=False)
    text = text if len(text) <= SHOWN else f"{text[: SHOWN // 2]} … {text[-SHOWN // 2 :]}"
    colour = {SpanKind.MODEL: "green", SpanKind.PROMPT: "cyan", SpanKind.CONTEXT: None}[span.kind]
    yield f"{indent}{click.style(f'{span.kind.value}, {len(ids)} tokens', dim=True)}"
    for line in text.splitlines():
        yield f"{indent}  {click.style(printable(line), fg=colour)}"


ANSWERS = (("text", 0, True), ("a call", 1, False), ("text and a call", 1, True), ("calls", 2, False))
"""Kinds of answer: name, number of calls, whether there is text."""
AFTER_TEXT: Sequence[tuple[Role, ...]] = ((Role.USER,), (Role.SYSTEM, Role.USER))
AFTER_CALLS: Sequence[tuple[Role, ...]] = ((Role.TOOL,), (Role.TOOL, Role.USER))  # Roles of the next messages


@click.command()
@click.argument("model", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def prove(model: Path, as_json: bool) -> int:
    """Show which kinds of turn extend a conversation without a fork, for the model in folder MODEL.

    MODEL may be a run folder: its newest model is checked. A proved turn continues the exact tokens that the engine
    saw, so a conversation stays one sample. If the chat template changes earlier text, the history is rendered again,
    which is as exact but adds a sample. Exit code 1: a turn is not proved, or no parser reads the model's tool calls.
    """
    tokenizer = HfTokenizer.load(_model_in(model))
    bridge = Bridge(tokenizer)
    try:
        bridge.whole([Message(Role.USER, "Hello.")])
    except ModelError as error:
        raise ModelError(f"{error}; {NEEDS_TEMPLATE}") from None
    rows = [(_label(answer, kind.tail, tools=kind.tools), bridge.proved(kind) is not None) for answer, kind in kinds()]
    family = find_family(tokenizer, families().values())
    if as_json:
        turns = [{"turn": name, "proved": proved} for name, proved in rows]
        click.echo(json.dumps({"model": str(model), "turns": turns, "parser": family.name if family else None}))
    else:
        _print(rows, family.name if family else None)
    return 0 if family is not None and all(proved for _, proved in rows) else 1


def _model_in(folder: Path) -> Path:
    saved = sorted(folder.glob("checkpoints/*/hf/config.json"))
    return saved[-1].parent if saved else folder


def kinds() -> list[tuple[str, Kind]]:
    """Every kind of turn that is shown, with the name of the answer before it."""
    return [
        (name, Kind(calls, has_text, _tail(tail, calls), tools))
        for name, calls, has_text in ANSWERS
        for tail in (AFTER_CALLS if calls else AFTER_TEXT)
        for tools in ((True,) if calls else (False, True))
    ]


def _tail(tail: tuple[Role, ...], calls: int) -> tuple[Role, ...]:
    return (Role.TOOL,) * (calls - 1) + tail if calls else tail


def _label(answer: str, tail: Sequence[Role], *, tools: bool) -> str:
    offered = ", tools offered" if tools and not answer.endswith(("call", "calls")) else ""
    return f"{answer}, then {' and '.join(role.value for role in tail)}{offered}"


def _print(rows: Sequence[tuple[str, bool]], parser: str | None) -> None:
    width = max(len(name) for name, _ in rows)
    for name, proved in rows:
        result = click.style("extends the exact tokens", fg="green") if proved else click.style("a fork", fg="yellow")
        click.echo(f"  {name:{width}}  {result}")
    count = sum(proved for _, proved in rows)
    click.echo(f"{count} of {len(rows)} kinds of turn extend the engine's exact tokens; each other kind starts a fork.")
    if parser is None:
        text = "no parser reads this template's tool calls. If the model writes another format, set its parser"
        click.echo(click.style(f'{text}, such as parser = "hermes". {list_parsers()}', fg="yellow"))
    else:
        click.echo(f"the parser {parser!r} reads the tool calls")
