"""`--temperature`, `--stop` and the like, for a command that samples without a run: the settings of `SamplingParams`.

Example:

    @click.command()
    @sampling_options
    def generate(**given: object) -> None:
        sampling = parse_sampling(given)
"""

from collections.abc import Mapping
from typing import cast

import click

from slime_core.roles import SamplingParams

_OPTIONS = (
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


def sampling_options(command: click.decorators.FC) -> click.decorators.FC:
    """Give a command the options; it is called with their values by keyword."""
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
            raise click.UsageError(f"--logit-bias {each}: expected ID=BIAS, as in 13=-2.5") from None
    ids = frozenset(cast(tuple[int, ...], given["stop_token_ids"]))
    try:
        return SamplingParams(**{**given, "stop_token_ids": ids, "logit_bias": biases})  # type: ignore[arg-type]  # click has parsed each by its type
    except ValueError as error:
        raise click.UsageError(str(error)) from None
