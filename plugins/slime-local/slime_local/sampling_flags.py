"""The sampling flags of `slime generate`, and the check of prompts against the model's longest text.

Example:

    params = parse_sampling(given)                      # from --temperature, --top-p, ...
    limit = TextLimit(prompts, params.max_new_tokens, positions=4096)
"""

from collections.abc import Mapping, Sequence
from typing import cast

import click

from slime_core.errors import DataError
from slime_core.roles import FinishReason, SamplingParams

# Options for `SamplingParams`, such as `--temperature`, for a command that samples without a run.

_OPTIONS = (
    click.option("--max-new-tokens", type=int, default=256, show_default=True, help="Maximum tokens of a response."),
    click.option(
        "--temperature", type=float, default=1.0, show_default=True, help="Sampling temperature; 0 is greedy."
    ),
    click.option(
        "--top-p", type=float, default=1.0, help="Draw from the most likely tokens with this total probability."
    ),
    click.option("--top-k", type=int, default=-1, help="Draw from this many most likely tokens; -1 is all."),
    click.option(
        "--min-p", type=float, default=0.0, help="Minimum probability, as a share of the most likely token's."
    ),
    click.option("--min-new-tokens", type=int, default=0, help="Minimum tokens before a stop token."),
    click.option("--stop", multiple=True, help="Text that ends a response; repeatable."),
    click.option("--stop-token-ids", type=int, multiple=True, help="Token id that ends a response; repeatable."),
    click.option("--ignore-eos", is_flag=True, help="Continue after stop tokens."),
    click.option("--repetition-penalty", type=float, default=1.0, help="Divides the logits of generated tokens."),
    click.option("--presence-penalty", type=float, default=0.0, help="Subtracted from the logits of generated tokens."),
    click.option(
        "--frequency-penalty", type=float, default=0.0, help="Subtracted once for each time a token was generated."
    ),
    click.option(
        "--logit-bias", multiple=True, metavar="ID=BIAS", help="Added to the logit of a token id; repeatable."
    ),
    click.option("--no-stop-trim", is_flag=True, help="Also show the stop text that ended a response."),
    click.option(
        "--skip-special-tokens/--no-skip-special-tokens", default=True, help="Remove special tokens from the text."
    ),
)


def sampling_options(command: click.decorators.FC) -> click.decorators.FC:
    """Add the options to a command, which gets their values by keyword."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def parse_sampling(given: Mapping[str, object]) -> SamplingParams:
    """The settings from the values of all options.

    Raises:
        click.UsageError: a setting is out of its range, or a bias is not written ID=BIAS.
    """
    biases: dict[int, float] = {}
    for each in cast(tuple[str, ...], given["logit_bias"]):
        token, _, bias = each.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            raise click.UsageError(f"--logit-bias {each}: expected ID=BIAS, such as 13=-2.5") from None
    ids = frozenset(cast(tuple[int, ...], given["stop_token_ids"]))
    try:
        return SamplingParams(**{**given, "stop_token_ids": ids, "logit_bias": biases})  # type: ignore[arg-type]  # click has parsed each by its type
    except ValueError as error:
        raise click.UsageError(str(error)) from None


# TextLimit: prompts and responses that exceed the model's positions.


class TextLimit:
    """The longest text that a model takes, and which responses to a list of prompts it cut short."""

    def __init__(self, prompts: Sequence[Sequence[int]], budget: int, positions: int | None) -> None:
        """Measure the prompts.

        Args:
            prompts: token ids of each.
            budget: `max_new_tokens` of a response.
            positions: tokens of the model's longest text, prompt included; None if unknown.

        Raises:
            DataError: a prompt leaves no token for a response.
        """
        self._lengths = [len(prompt) for prompt in prompts]
        self._budget, self._positions = budget, positions
        self._cut, self._first = 0, ""
        if positions is None:
            return
        long = [number for number, length in enumerate(self._lengths) if length >= positions]
        if long:
            others = f" (and {len(long) - 1} more are too long)" if long[1:] else ""
            raise DataError(
                f"prompt {long[0]} has {self._lengths[long[0]]} tokens{others}, and the model has {positions} "
                "positions for prompt and response together: none is left for a response. Shorten the prompt or remove "
                "it; prompts are numbered from 0"
            )

    def note(self, prompt: int, sample: int, count: int, finish: FinishReason) -> None:
        """Count a response if the model's longest text cut it, not its budget."""
        if finish is not FinishReason.LENGTH or count >= self._budget:
            return
        self._cut += 1
        if not self._first:
            self._first = (
                f"prompt {prompt} sample {sample} has {count} of {self._budget} tokens after "
                f"a prompt of {self._lengths[prompt]}"
            )

    def summary(self) -> str:
        """One sentence on the cut responses; empty if there are none."""
        if not self._cut:
            return ""
        limit = "the engine's longest text" if self._positions is None else f"the model's {self._positions} positions"
        which = "1 response" if self._cut == 1 else f"{self._cut} responses, the first"
        return f"cut short by {limit}: {which}: {self._first}"
