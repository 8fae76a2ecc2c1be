"""`slime generate`: what does a model, or a run's newest checkpoint, say to some prompts."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import click

from slime_core.cli.run_options import literal
from slime_core.config import read_positions
from slime_core.data import HfTokenizer, Renderer, every_prompt, with_bos
from slime_core.data.row_reader import UnusableRow
from slime_core.data.rows import split_slice
from slime_core.errors import CheckpointError, DataError, ModelError, printable
from slime_core.roles import PromptFile, RowFormat, StreamsTokens
from slime_core.run import Serving, model_of, newest_checkpoint, started
from slime_core.run.checkpoint import MANIFEST, model_day
from slime_core.sample import Json, Sample
from slime_local.answer_file import AnswerFile
from slime_local.count_shown import CountShown
from slime_local.generation import Asked, Part, Response, responses, text_parts
from slime_local.sampling_flags import TextLimit, parse_sampling, sampling_options


@click.command(short_help="Generate with a model, or a run's newest checkpoint.")
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("prompts", nargs=-1)
@click.option("--prompt-data", help="Prompts of a .jsonl or .parquet file; file@[a:b] takes a slice.")
@click.option("--input-key", default="input", show_default=True, help="Column of the prompt: text or chat messages.")
@click.option("--apply-chat-template", is_flag=True, help="Render prompts through the model's chat template.")
@click.option(
    "--final-assistant-message",
    type=click.Choice(["refuse", "continue", "cut"]),
    default="refuse",
    show_default=True,
    help="Prompts that end with an assistant message: refuse them, continue the message, or cut it off.",
)
@click.option("--n-samples-per-prompt", type=click.IntRange(1), default=1, help="Responses to each prompt.")
@click.option("--seed", type=int, default=1234, show_default=True, help="Every draw derives from it.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="Write JSON lines to this file instead, once all are made."
)
@click.option("--engine", default="local", show_default=True, help="Which engine generates.")
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="A setting of the engine; repeatable.")
@click.option("--bf16", is_flag=True, help="Compute in bf16.")
@sampling_options
def generate(
    model: Path,
    prompts: tuple[str, ...],
    prompt_data: str | None,
    input_key: str,
    apply_chat_template: bool,
    final_assistant_message: Literal["refuse", "continue", "cut"],
    n_samples_per_prompt: int,
    seed: int,
    out: Path | None,
    engine: str,
    given: tuple[str, ...],
    bf16: bool,
    **sampling: object,
) -> None:
    """Generate with MODEL: a model directory, or a run folder or checkpoint, whose newest weights are taken.

    Prompts are arguments, the rows of --prompt-data, or else what is piped in, as one. A terminal shows a single
    response as it is made. Earlier answers in the file that --out names are replaced when all responses are there, and
    other files never. Until then, and after a Ctrl-C, those made so far are in a file beside it, OUT.part.

    \b
    slime generate runs/first "What is 2+3?" --apply-chat-template
    slime generate Qwen3-0.6B --prompt-data test.jsonl --n-samples-per-prompt 4 --out answers.jsonl
    """  # noqa: D301  # \b keeps click from filling the lines below it
    read = None if prompt_data is None else split_slice(Path(prompt_data))[0]
    answers = None if out is None else AnswerFile.checked(out, read)
    directory = _model_directory(model)
    tokenizer = HfTokenizer.load(directory, model_day(directory))
    if prompt_data is not None:
        if prompts:
            raise click.UsageError("prompts are given twice: as arguments, and with --prompt-data")
        row_format = RowFormat(
            input_key=input_key,
            apply_chat_template=apply_chat_template,
            final_assistant_message=final_assistant_message,
        )
        try:
            groups = every_prompt(PromptFile.of(Path(prompt_data), "prompts", row_format), tokenizer, 1).groups
        except UnusableRow as error:
            raise DataError(error.args[0]) from None  # no bad_rows here that could be set
        renderer = Renderer(tokenizer, None)
        texts = [_row_text(group.samples[0], renderer) for group in groups]
    else:
        texts = [_rendered(prompt, tokenizer, apply_chat_template) for prompt in prompts or _piped()]
    prompt_ids = [tokenizer.encode(text) for text in texts]
    asked = Asked(prompt_ids, parse_sampling(sampling), n_samples_per_prompt, seed)
    limit = TextLimit(prompt_ids, asked.sampling.max_new_tokens, read_positions(directory))
    if answers is not None:
        answers.refuse_other_files()
    serving = Serving.of(directory, engine, _settings(given), seed=seed, bf16=bf16)
    asyncio.run(_run(serving, tokenizer, _Job(asked, texts, limit, answers)))
    if said := limit.said():
        click.echo(said, err=True)


@dataclass(frozen=True, slots=True)
class _Job:
    asked: Asked
    """What is asked."""
    texts: Sequence[str]
    """The prompts, as they are written out."""
    limit: TextLimit
    """Told of every response."""
    out: AnswerFile | None
    """Where they go; None shows them."""


async def _run(serving: Serving, tokenizer: HfTokenizer, job: _Job) -> None:
    asked, out = job.asked, job.out
    total = len(asked.prompts) * asked.n_samples_per_prompt
    async with started(serving, tokenizer) as engine:
        if out is None and total == 1 and sys.stdout.isatty() and isinstance(engine, StreamsTokens):
            async with aclosing(text_parts(engine, tokenizer, asked)) as parts:
                await _show_parts(parts, job.limit)
            return
        async with aclosing(responses(engine, tokenizer, asked)) as found:
            if out is not None:
                with out:
                    await _write(found, job, total, out)
                if not out.direct:
                    click.echo(f"written: {out.path}, {total} responses")
                return
            async for response in found:
                _show(response, total)
                _note(response, job.limit)


async def _write(found: AsyncIterator[Response], job: _Job, total: int, out: AnswerFile) -> None:
    progress = CountShown(total)
    try:
        async for response in found:
            out.write(_row(job.texts[response.prompt], response))
            _note(response, job.limit)
            progress.show(out.lines)
    finally:
        progress.end()


async def _show_parts(parts: AsyncIterator[Part], limit: TextLimit) -> None:
    begun = False
    try:
        async for part in parts:
            if part.text:
                click.echo(printable(part.text), nl=False)
                begun = True
            if part.finish is not None:
                limit.note(0, 0, part.tokens, part.finish)
    except BaseException:
        if begun:
            click.echo()  # what is said of the error begins a line of its own
        raise
    click.echo()


def _note(response: Response, limit: TextLimit) -> None:
    limit.note(response.prompt, response.sample, len(response.output.tokens), response.output.finish)


def _show(response: Response, total: int) -> None:
    if total > 1:
        how = f"{response.output.finish.value}, {len(response.output.tokens)} tokens"
        title = f"prompt {response.prompt} sample {response.sample}"
        click.echo(f"{click.style(title, bold=True)}  {click.style(how, dim=True)}")
    click.echo(printable(response.text))


def _row(prompt: str, response: Response) -> dict[str, Json]:
    output = response.output
    return {
        "prompt": prompt,
        "response": response.text,
        "sample": response.sample,
        "finish_reason": {"type": output.finish.value, "matched": output.matched},
        "tokens": list(output.tokens),
        "log_probs": list(output.log_probs),
    }


def _model_directory(given: Path) -> Path:
    """Where the weights are: of a model directory, a checkpoint, or a run folder."""
    if (given / "config.json").is_file():
        return given
    if (given / "hf").is_dir() or (given / MANIFEST).is_file():
        return model_of(given.resolve())
    if (given / "checkpoints").is_dir():
        newest = newest_checkpoint(given / "checkpoints", lambda text: click.echo(printable(text), err=True))
        if newest is None:
            raise CheckpointError(f"{given} has no checkpoint yet")
        return model_of(newest.path)
    what = "there is nothing there" if not given.exists() else "it has neither config.json, hf/ nor checkpoints/"
    raise ModelError(f"no model in {given}: {what}; expected a model directory, a checkpoint or a run folder")


def _piped() -> list[str]:
    if sys.stdin.isatty() or not (text := sys.stdin.read()).strip():
        raise click.UsageError("nothing to generate from: give prompts, or --prompt-data FILE, or pipe a text in")
    return [text.rstrip("\n")]


def _rendered(prompt: str, tokenizer: HfTokenizer, chat: bool) -> str:
    return tokenizer.apply_chat_template([{"role": "user", "content": prompt}]) if chat else with_bos(prompt, tokenizer)


def _row_text(sample: Sample, renderer: Renderer) -> str:
    prompt = sample.prompt
    return prompt if isinstance(prompt, str) else renderer.prompt(prompt, sample.metadata.get("tools")).text


def _settings(given: Sequence[str]) -> dict[str, Json]:
    """Settings of the engine as they are typed, KEY=VALUE each; the last one of a key counts."""
    settings: dict[str, Json] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not equals:
            raise click.UsageError(f"--set {each}: expected KEY=VALUE, as in workers=1")
        settings[key.replace("-", "_")] = literal(text)
    return settings
