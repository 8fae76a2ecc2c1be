"""`slime generate`: responses of a model, or a run's newest checkpoint, to prompts."""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TextIO

import click

from slime_core.aio import cancel_all
from slime_core.cli.run_options import literal
from slime_core.config import read_positions
from slime_core.data import HfTokenizer, PromptTable, Renderer, with_bos
from slime_core.data.rows import split_slice
from slime_core.errors import CheckpointError, ConfigError, ModelError, printable
from slime_core.outputs import refuse_occupied
from slime_core.roles import (
    Engine,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    GenerateRequest,
    PromptFile,
    RowFormat,
    SamplingParams,
    StreamsTokens,
    Tokenizer,
)
from slime_core.rollout import response_text
from slime_core.run import model_of, newest_checkpoint
from slime_core.run.checkpoint import MANIFEST
from slime_core.run.resume import model_day
from slime_core.sample import GroupId, Json, Sample
from slime_core.seeds import derive_seed
from slime_local.progress_count import ProgressCount
from slime_local.sampling_flags import TextLimit, parse_sampling, sampling_options
from slime_local.serving import Serving, serve


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """Prompts and sampling of one call."""

    prompts: Sequence[Sequence[int]]
    """Token ids of each prompt, with the chat template applied."""
    sampling: SamplingParams
    """Sampling settings."""
    n_samples_per_prompt: int = 1
    """Responses to each prompt."""
    seed: int = 0
    """Base seed; each response's seed derives from it and the numbers of prompt and sample."""


@dataclass(frozen=True, slots=True)
class Response:
    """One response."""

    prompt: int
    """Number of its prompt, from 0."""
    sample: int
    """Number among the prompt's responses, from 0."""
    text: str
    """Text; the sampling settings decide whether it has special tokens and the stop text."""
    output: GenerateOutput
    """The engine's answer."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a response."""

    text: str
    """New text after the earlier parts."""
    tokens: int
    """Number of tokens generated so far."""
    finish: FinishReason | None
    """Why the response ended; set only in the last part."""


async def responses(engine: Engine, tokenizer: Tokenizer, batch: PromptBatch) -> AsyncGenerator[Response, None]:
    """Send all requests at once, and yield the responses in order as they complete.

    Raises:
        SlimeError: the engine's.
    """
    places = [(prompt, sample) for prompt in range(len(batch.prompts)) for sample in range(batch.n_samples_per_prompt)]
    tasks = [asyncio.create_task(engine.generate(_request(prompt, sample, batch))) for prompt, sample in places]
    try:
        for (prompt, sample), task in zip(places, tasks, strict=True):
            output = await task
            yield Response(prompt, sample, response_text(tokenizer, output, batch.sampling), output)
    finally:
        await cancel_all(tasks)


async def text_parts(engine: StreamsTokens, tokenizer: Tokenizer, batch: PromptBatch) -> AsyncGenerator[Part, None]:
    """Stream the first prompt's first response; the joined texts equal the text of `responses`.

    Raises:
        SlimeError: the engine's.
    """
    text, count = StreamedText(tokenizer, batch.sampling), 0
    async with aclosing(engine.stream(_request(0, 0, batch))) as chunks:
        async for chunk in chunks:
            count += len(chunk.tokens)
            yield Part(text.add(chunk), count, chunk.finish)


def _request(prompt: int, sample: int, batch: PromptBatch) -> GenerateRequest:
    seed = derive_seed(batch.seed, "generate", prompt, sample)
    return GenerateRequest(batch.prompts[prompt], batch.sampling, seed, GroupId("generate", 0, prompt, prompt))


CUT = "\ufffd"
"""Replacement character that a tokenizer returns for an incomplete character."""


class StreamedText:
    """Text of a streamed response, up to the point that later tokens cannot change."""

    def __init__(self, tokenizer: Tokenizer, sampling: SamplingParams) -> None:
        self._tokenizer, self._sampling = tokenizer, sampling
        self._stops = () if sampling.no_stop_trim else sampling.stop
        self._chunks: list[GenerateChunk] = []
        self._shown = ""

    def add(self, chunk: GenerateChunk) -> str:
        """The new text after this part; after the last part, all that is left.

        If the final text differs from text already returned, returns a newline and the whole text.
        """
        self._chunks.append(chunk)
        if chunk.finish is not None:
            text = response_text(self._tokenizer, GenerateOutput.joined(self._chunks), self._sampling)
            return text[len(self._shown) :] if text.startswith(self._shown) else f"\n{text}"
        tokens = [token for each in self._chunks for token in each.tokens]
        keep = {} if self._sampling.skip_special_tokens else {"skip_special_tokens": False}
        text = before_stops(self._tokenizer.decode(tokens, **keep).rstrip(CUT), self._stops)
        if not text.startswith(self._shown):
            return ""
        new, self._shown = text[len(self._shown) :], text
        return new


def before_stops(text: str, stops: Sequence[str]) -> str:
    """The text before the first stop text, or before a suffix that may begin one."""
    ends = [len(text)]
    for stop in stops:
        ends += [found] if (found := text.find(stop)) >= 0 else []
        ends += [len(text) - size for size in range(1, len(stop)) if text.endswith(stop[:size])]
    return text[: min(ends)]


_STDOUT = Path("/dev/stdout")
LONGEST_LINE = 1 << 24


class AnswerFile:
    """A file of answers; earlier contents stay until the new answers are complete."""

    def __init__(self, path: Path) -> None:
        """Take a `path` that passed `checked`; `-` is standard output. A link is followed and kept."""
        self.path = _STDOUT if path == Path("-") else path
        self.direct = self.path == _STDOUT or (path.exists() and not path.is_file())
        """Whether it is no regular file: standard output, a device or a pipe."""
        self._target = self.path.resolve()
        self.part = self.path if self.direct else self._target.with_name(self._target.name + ".part")
        """The file to write to."""
        self.lines = 0
        """Number of lines written so far."""
        self._stream: TextIO | None = None

    @classmethod
    def checked(cls, path: Path, read: Path | None) -> "AnswerFile":
        """Check that answers can be written to a path, without writing.

        Args:
            path: of the answers.
            read: prompts that come from a file, which must be another one.

        Raises:
            ConfigError: it is a folder, its folder is missing or not writable, or it holds the prompts.
        """
        answers = cls(path)
        if path.is_dir():
            raise ConfigError(f"--out {path} is a folder: give a file, --out {path / 'answers.jsonl'}")
        if answers.direct:
            return answers
        folder = answers._target.parent
        if not folder.is_dir():
            raise ConfigError(f"--out {path}: there is no folder {folder}; create it with mkdir -p {folder}")
        for each in (folder, answers._target, answers.part):
            if each.exists() and not os.access(each, os.W_OK):
                raise ConfigError(f"--out {path}: {each} is not writable")
        for each in (answers._target, answers.part):
            if read is not None and _within(each, read):
                which = "" if each == answers._target else f" (written first to {each})"
                raise ConfigError(
                    f"--out {path}{which} and --prompt-data {read} are the same file, and the answers would "
                    "replace the prompts: give another --out"
                )
        return answers

    def refuse_other_files(self) -> None:
        """Check that only files of earlier answers would be replaced.

        Raises:
            ConfigError: an existing file holds something else.
        """
        for each in (self._target, self.part):
            if not self.direct and not _has_answers(each):
                refuse_occupied(f"--out {self.path}", each)

    def __enter__(self) -> Self:
        """Open the part file, emptied.

        Raises:
            ConfigError: the file cannot be written.
        """
        with _errors_of(self.part):
            self._stream = self.part.open("a" if self.direct else "w", encoding="utf-8")
        return self

    def write(self, row: Mapping[str, Json]) -> None:
        """Write and flush one complete line.

        Raises:
            ConfigError: the disk is full.
        """
        assert self._stream is not None, "entered"
        with _errors_of(self.part):
            self._stream.write(printable(json.dumps(row, ensure_ascii=False)) + "\n")
            self._stream.flush()
        self.lines += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Move the part file into place, or report where the finished lines are."""
        assert self._stream is not None, "entered"
        with suppress(OSError):  # `write` has flushed all lines, and reported a full disk
            self._stream.close()
        if self.direct:
            return
        if kind is None:
            with _errors_of(self.path):
                if self._target.exists():
                    shutil.copymode(self._target, self.part)
                self.part.replace(self._target)
        elif self.lines:
            click.echo(f"not complete: the first {self.lines} responses are in {self.part}", err=True)
        else:
            self.part.unlink(missing_ok=True)


def _has_answers(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            first = json.loads(file.readline(LONGEST_LINE))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "response" in first


def _within(path: Path, read: Path) -> bool:
    """Whether a path is the input or lies in its folder; follows symbolic and hard links."""
    if path.exists() and read.exists() and path.samefile(read):
        return True
    return path.is_relative_to(read.resolve())


@contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise ConfigError(f"cannot write {path}: {why}; free disk space, or name another file with --out") from error


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
@click.option("--seed", type=int, default=1234, show_default=True, help="Seed of all draws.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write responses as JSON lines to this file instead of printing them.",
)
@click.option("--engine", default="local", show_default=True, help="Engine that generates.")
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="Setting of the engine; repeatable.")
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
    """Generate with MODEL: a model directory, a checkpoint, or a run folder, whose newest checkpoint is used.

    Prompts are arguments, rows of --prompt-data, or else the text on standard input, as one prompt. A terminal shows
    a single response while it is generated. --out is written at the end; an existing file is replaced only if it
    holds answers. Until then, and after Ctrl-C, finished responses are in OUT.part.

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
            raise click.UsageError("give prompts as arguments or with --prompt-data, not both")
        row_format = RowFormat(
            input_key=input_key,
            apply_chat_template=apply_chat_template,
            final_assistant_message=final_assistant_message,
        )
        table = PromptTable([PromptFile.of(Path(prompt_data), "prompts", row_format)], tokenizer)
        renderer = Renderer(tokenizer, None)
        texts = [_row_text(group.samples[0], renderer) for group in table.groups(1)]
    else:
        texts = [_rendered(prompt, tokenizer, apply_chat_template) for prompt in prompts or _piped()]
    prompt_ids = [tokenizer.encode(text) for text in texts]
    batch = PromptBatch(prompt_ids, parse_sampling(sampling), n_samples_per_prompt, seed)
    limit = TextLimit(prompt_ids, batch.sampling.max_new_tokens, read_positions(directory))
    if answers is not None:
        answers.refuse_other_files()
    serving = Serving.of(directory, engine, _settings(given), seed=seed, bf16=bf16)
    asyncio.run(_run(serving, tokenizer, _Job(batch, texts, limit, answers)))
    if summary := limit.summary():
        click.echo(summary, err=True)


@dataclass(frozen=True, slots=True)
class _Job:
    batch: PromptBatch
    """Prompts and sampling."""
    texts: Sequence[str]
    """The prompts as text."""
    limit: TextLimit
    """Counts every response and whether it was cut."""
    out: AnswerFile | None
    """File for the responses; None prints them."""


async def _run(serving: Serving, tokenizer: HfTokenizer, job: _Job) -> None:
    batch, out = job.batch, job.out
    total = len(batch.prompts) * batch.n_samples_per_prompt
    async with serve(serving, tokenizer) as engine:
        if out is None and total == 1 and sys.stdout.isatty() and isinstance(engine, StreamsTokens):
            async with aclosing(text_parts(engine, tokenizer, batch)) as parts:
                await _show_parts(parts, job.limit)
            return
        async with aclosing(responses(engine, tokenizer, batch)) as found:
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
    progress = ProgressCount(total)
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
            click.echo()  # the error message begins on a new line
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
    """Directory with the weights of a model directory, checkpoint or run folder."""
    if (given / "config.json").is_file():
        return given
    if (given / "hf").is_dir() or (given / MANIFEST).is_file():
        return model_of(given.resolve())
    if (given / "checkpoints").is_dir():
        newest = newest_checkpoint(given / "checkpoints", lambda text: click.echo(printable(text), err=True))
        if newest is None:
            raise CheckpointError(f"{given} has no checkpoint yet")
        return model_of(newest.path)
    what = "it does not exist" if not given.exists() else "it has neither config.json, hf/ nor checkpoints/"
    raise ModelError(f"no model in {given}: {what}; expected a model directory, a checkpoint or a run folder")


def _piped() -> list[str]:
    if sys.stdin.isatty() or not (text := sys.stdin.read()).strip():
        raise click.UsageError(
            "there are no prompts: give them as arguments, with --prompt-data FILE, or on standard input"
        )
    return [text.rstrip("\n")]


def _rendered(prompt: str, tokenizer: HfTokenizer, chat: bool) -> str:
    return tokenizer.apply_chat_template([{"role": "user", "content": prompt}]) if chat else with_bos(prompt, tokenizer)


def _row_text(sample: Sample, renderer: Renderer) -> str:
    prompt = sample.prompt
    return prompt if isinstance(prompt, str) else renderer.prompt(prompt, sample.metadata.get("tools")).text


def _settings(given: Sequence[str]) -> dict[str, Json]:
    """Engine settings from KEY=VALUE texts; the last one of a key wins."""
    settings: dict[str, Json] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not equals:
            raise click.UsageError(f"--set {each}: expected KEY=VALUE, such as workers=1")
        settings[key.replace("-", "_")] = literal(text)
    return settings
