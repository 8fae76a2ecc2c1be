import functools
from collections.abc import Callable

from slime_core import Sample, Score
from slime_core.catalog import RegisteredChoice
from slime_core.roles import Reward, RewardContext, RewardSpec, Settings, Setup
from tests.tables import table


async def reward(sample: Sample, ctx: RewardContext) -> Score:
    return Score(1.0)


def factory(settings: Settings, setup: Setup, *, strict: bool = False) -> Reward:
    return reward


def line_of(function: Callable[..., object]) -> str:
    code = function.__code__  # type: ignore[attr-defined]
    return f"{code.co_filename}:{code.co_firstlineno}"


@table(
    "spec, origin",
    [
        (RewardSpec("one", factory), line_of(factory)),
        (RewardSpec("one", functools.partial(factory, strict=True)), line_of(factory)),
        (RewardSpec.from_function("one", reward), line_of(reward)),
        (RewardSpec("one", dict), "builtins"),
    ],
)
def test_the_origin_is_where_the_author_would_look(spec: RewardSpec, origin: str) -> None:
    assert RegisteredChoice(spec, "p/one", "p", "p", "1.0").origin == origin
