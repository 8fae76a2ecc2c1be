"""`slime generate`: what does a model, or a run's newest checkpoint, say to some prompts."""

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import click

from slime_core.catalog import Catalog
from slime_core.data import HfTokenizer, every_prompt
from slime_core.errors import CheckpointError, ConfigError, ModelError
from slime_core.roles import PromptFile, RowFormat, SamplingParams, Setup
from slime_core.run import newest_checkpoint
from slime_core.run.generation import Asked, Response, Serving, responses
from slime_core.sample import Json, Message

_SAMPLING = (
    click.option("--max-new-tokens", type=int, default=256, show_default=True, help="Token budget of a response."),
    click.option("--temperature", type=float, default=1.0, show_default=True, help="0 is greedy."),
    click.option("--top-p", type=float, default=1.0, help="Nucleus mass."),
    click.option("--top-k", type=int, default=-1, help="Candidates kept."),
    click.option("--min-p", type=float, default=0.0, help="Least share of the likeliest one's probability."),
    click.option("--min-new-tokens", type=int, default=0, help="Tokens before which no stop token is drawn."),
    click.option("--stop", multiple=True, help="Text that ends a response; repeatable."),
    click.option("--stop-token-ids", type=int, multiple=True, help="Id that ends a response; repeatable."),
    click.option("--ignore-eos", is_flag=True, help="Let no token end a response."),
    click.option("--repetition-penalty", type=float, default=1.0, help="Divides the logits of tokens made so far."),
    click.option("--presence-penalty", type=float, default=0.0, help="Taken off the logits of tokens made so far."),
    click.option("--frequency-penalty", type=float, default=0.0, help="The same, as often as each was made."),
    click.option("--logit-bias", multiple=True, metavar="ID=BIAS", help="Added to the logit of an id; repeatable."),
    click.option("--no-stop-trim", is_flag=True, help="Show the stop text that ended a response, too."),
    click.option("--skip-special-tokens/--no-skip-special-tokens", default=True, help="Leave special tokens out."),
)


def _sampling_options(command: click.decorators.FC) -> click.decorators.FC:
    for option in reversed(_SAMPLING):
        command = option(command)
    return command


@click.command()
@click.argument("model", type=click.Path(path_type=Path))
@click.argument("prompts", nargs=-1)
@click.option("--prompt-data", help="Prompts of a .jsonl or .parquet file; file@[a:b] takes a slice.")
@click.option("--input-key", default="input", show_default=True, help="Column of the prompt: text or chat messages.")
@click.option("--apply-chat-template", is_flag=True, help="Render prompts through the model's chat template.")
@click.option("--n-samples-per-prompt", type=click.IntRange(1), default=1, help="Responses to each prompt.")
@click.option("--seed", type=int, default=1234, show_default=True, help="Every draw derives from it.")
@click.option("--out", type=click.File("w", "utf-8", lazy=False), help="Write JSON lines to this file instead.")
@click.option("--engine", default="local", show_default=True, help="Which engine generates.")
@_sampling_options
def generate(
    model: Path,
    prompts: tuple[str, ...],
    prompt_data: str | None,
    input_key: str,
    apply_chat_template: bool,
    n_samples_per_prompt: int,
    seed: int,
    out: TextIO | None,
    engine: str,
    **sampling: object,
) -> None:
    """Generate with MODEL: a model directory, or a run folder or checkpoint, whose newest weights are taken.

    Prompts are arguments, the rows of --prompt-data, or else what is piped in, as one.

    \b
    slime generate runs/first "What is 2+3?" --apply-chat-template
    slime generate Qwen3-0.6B --prompt-data test.jsonl --n-samples-per-prompt 4 --out answers.jsonl
    """  # noqa: D301  # \b keeps click from filling the lines below it
    directory = _model_directory(model)
    tokenizer = HfTokenizer.load(directory)
    if prompt_data is not None:
        if prompts:
            raise click.UsageError("prompts are given twice: as arguments, and with --prompt-data")
        row_format = RowFormat(input_key=input_key, apply_chat_template=apply_chat_template)
        groups = every_prompt(PromptFile.of(Path(prompt_data), "prompts", row_format), tokenizer, 1).groups
        texts = [_rendered(group.samples[0].prompt, tokenizer, chat=False) for group in groups]
    else:
        texts = [_rendered(prompt, tokenizer, apply_chat_template) for prompt in prompts or _piped()]
    asked = Asked(texts, _sampling(sampling), n_samples_per_prompt, seed)
    catalog = Catalog.discover()
    asyncio.run(_run(Serving(catalog, Setup(_make, seed), directory, engine), tokenizer, asked, out))


async def _run(serving: Serving, tokenizer: HfTokenizer, asked: Asked, out: TextIO | None) -> None:
    total, done = len(asked.prompts) * asked.n_samples_per_prompt, 0
    async for response in responses(serving, tokenizer, asked):
        done += 1
        if out is None:
            _show(response, total)
            continue
        row = _row(asked.prompts[response.prompt], response)
        out.write(json.dumps(row, ensure_ascii=False) + "\n")
        if sys.stderr.isatty():
            click.echo(f"\r{done} of {total}", nl=done == total, err=True)
    if out is not None:
        click.echo(f"written: {out.name}, {total} responses")


def _show(response: Response, total: int) -> None:
    if total > 1:
        how = f"{response.output.finish.value}, {len(response.output.tokens)} tokens"
        title = f"prompt {response.prompt} sample {response.sample}"
        click.echo(f"{click.style(title, bold=True)}  {click.style(how, dim=True)}")
    click.echo(response.text)


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
    if (given / "hf" / "config.json").is_file():
        return given / "hf"
    if (given / "checkpoints").is_dir():
        newest = newest_checkpoint(given / "checkpoints", lambda text: click.echo(text, err=True))
        if newest is None:
            raise CheckpointError(f"{given} has no checkpoint yet")
        return newest.path / "hf"
    what = "there is nothing there" if not given.exists() else "it has neither config.json, hf/ nor checkpoints/"
    raise ModelError(f"no model in {given}: {what}; expected a model directory, a checkpoint or a run folder")


def _piped() -> list[str]:
    if sys.stdin.isatty() or not (text := sys.stdin.read()).strip():
        raise click.UsageError("nothing to generate from: give prompts, or --prompt-data FILE, or pipe a text in")
    return [text.rstrip("\n")]


def _rendered(prompt: str | Sequence[Message], tokenizer: HfTokenizer, chat: bool) -> str:
    if not isinstance(prompt, str):
        return tokenizer.apply_chat_template(prompt)
    return tokenizer.apply_chat_template([{"role": "user", "content": prompt}]) if chat else prompt


def _sampling(given: dict[str, object]) -> SamplingParams:
    biases: dict[int, float] = {}
    for each in given.pop("logit_bias"):  # type: ignore[attr-defined]
        token, _, bias = str(each).partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise click.UsageError(f"--logit-bias {each}: expected ID=BIAS, as in 13=-2.5") from None
    ids = frozenset(given.pop("stop_token_ids"))  # type: ignore[call-overload]
    try:
        return SamplingParams(**given, stop_token_ids=ids, logit_bias=biases)  # type: ignore[arg-type]
    except ValueError as error:
        raise click.UsageError(str(error)) from None


def _make(role: str, name: str, **settings: object) -> object:
    raise ConfigError(f"an engine asks for {role} {name!r}; `slime generate` builds the engine alone")
