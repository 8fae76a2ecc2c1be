"""Source of plugins that the tests of the catalog install."""


def reward_plugin(name: str = "one", more: str = "") -> str:
    """A plugin with one reward, and `more` code."""
    return f"""
from slime_core import RewardSpec, Score, hookimpl

SLIME_API = "1"


async def reward(sample, ctx):
    return Score(1.0)


@hookimpl
def slime_rewards():
    yield RewardSpec.from_function("{name}", reward)

{more}
"""
