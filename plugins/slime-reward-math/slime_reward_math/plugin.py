"""What slime-core finds through the entry point: nine rewards under slime's names, each with its `boxed_` variant.

A reward is imported when it is built: a run that plans, or trains with another one, needs none of them.
"""

from collections.abc import Iterable

from slime_core import hookimpl
from slime_core.roles import Isolation, Reward, RewardSpec, Settings, Setup
from slime_reward_math.rewards.settings import (
    F1Settings,
    FormatSettings,
    GpqaSettings,
    IfbenchSettings,
    MathSettings,
    RemoteSettings,
)

SLIME_API = "1"


def math(settings: MathSettings, setup: Setup) -> Reward:
    """Compare the last box with the label."""
    from slime_reward_math.rewards import answers

    return answers.math(settings)


def boxed_math(settings: MathSettings, setup: Setup) -> Reward:
    """Compare the last box with the label."""
    from slime_reward_math.rewards import answers

    return answers.boxed_math(settings)


def deepscaler(settings: MathSettings, setup: Setup) -> Reward:
    """Compare the last box after the thinking with the label."""
    from slime_reward_math.rewards import answers

    return answers.deepscaler(settings)


def boxed_deepscaler(settings: MathSettings, setup: Setup) -> Reward:
    """Compare the last box after the thinking with the label."""
    from slime_reward_math.rewards import answers

    return answers.boxed_deepscaler(settings)


def dapo(settings: MathSettings, setup: Setup) -> Reward:
    """Compare the last answer line with the label."""
    from slime_reward_math.rewards import answers

    return answers.dapo(settings)


def boxed_dapo(settings: MathSettings, setup: Setup) -> Reward:
    """Compare the last box with the label; 1 or -1."""
    from slime_reward_math.rewards import answers

    return answers.boxed_dapo(settings)


def gpqa(settings: GpqaSettings, setup: Setup) -> Reward:
    """Compare the chosen letter with the right one."""
    from slime_reward_math.rewards.letters import Letters

    return Letters(settings)


def boxed_gpqa(settings: GpqaSettings, setup: Setup) -> Reward:
    """Compare the letter in the last box with the right one."""
    from slime_reward_math.rewards.letters import Letters

    return Letters(settings, within_box=True)


def f1(settings: F1Settings, setup: Setup) -> Reward:
    """Score the words that response and label share."""
    from slime_reward_math.rewards.overlap import Overlap

    return Overlap(settings)


def boxed_f1(settings: F1Settings, setup: Setup) -> Reward:
    """Score the words that the last box and the label share."""
    from slime_reward_math.rewards.overlap import Overlap

    return Overlap(settings, within_box=True)


def ifbench(settings: IfbenchSettings, setup: Setup) -> Reward:
    """Verify the row's instructions."""
    from slime_reward_math.rewards.following import Following

    return Following(settings)


def boxed_ifbench(settings: IfbenchSettings, setup: Setup) -> Reward:
    """Verify the row's instructions on the last box."""
    from slime_reward_math.rewards.following import Following

    return Following(settings, within_box=True)


def draw(settings: Settings, setup: Setup) -> Reward:
    """Draw 0 or 1."""
    from slime_reward_math.rewards.draw import Draw

    return Draw()


def remote_rm(settings: RemoteSettings, setup: Setup) -> Reward:
    """Ask a server."""
    from slime_reward_math.rewards.remote import Remote

    return Remote(settings)


def boxed_remote_rm(settings: RemoteSettings, setup: Setup) -> Reward:
    """Ask a server about the last box."""
    from slime_reward_math.rewards.remote import Remote

    return Remote(settings, within_box=True)


def shape(settings: FormatSettings, setup: Setup) -> Reward:
    """Look at the form alone."""
    from slime_reward_math.rewards.shape import Shape

    return Shape(settings)


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    """The rewards of this plugin: on the loop, because they compute for 0.1 ms, or wait in threads of their own."""
    loop, graded = Isolation.LOOP, MathSettings
    yield RewardSpec("math", math, graded, "1 when the last boxed answer equals the label, else 0", isolation=loop)
    yield RewardSpec("boxed_math", boxed_math, graded, "math, under slime's name for boxed answers", isolation=loop)
    yield RewardSpec("deepscaler", deepscaler, graded, "math after </think> or ###Response", isolation=loop)
    yield RewardSpec("boxed_deepscaler", boxed_deepscaler, graded, "deepscaler of the last box", isolation=loop)
    yield RewardSpec("dapo", dapo, graded, "1 when the last 'Answer:' line equals the label, else -1", isolation=loop)
    yield RewardSpec("boxed_dapo", boxed_dapo, graded, "1 when the last box equals the label, else -1", isolation=loop)
    yield RewardSpec("gpqa", gpqa, GpqaSettings, "1 when the response chooses the right letter", isolation=loop)
    yield RewardSpec("boxed_gpqa", boxed_gpqa, GpqaSettings, "gpqa of the last box", isolation=loop)
    yield RewardSpec("f1", f1, F1Settings, "overlap of words with the label, between 0 and 1", isolation=loop)
    yield RewardSpec("boxed_f1", boxed_f1, F1Settings, "f1 of the last box", isolation=loop)
    yield RewardSpec("ifbench", ifbench, IfbenchSettings, "1 when every instruction is followed", isolation=loop)
    yield RewardSpec("boxed_ifbench", boxed_ifbench, IfbenchSettings, "ifbench of the last box", isolation=loop)
    yield RewardSpec("random", draw, Settings, "0 or 1 by the sample's seed", isolation=loop)
    yield RewardSpec("boxed_random", draw, Settings, "random", isolation=loop)
    asked = RemoteSettings
    yield RewardSpec("remote_rm", remote_rm, asked, "what the server at rm_url answers", 300.0, isolation=loop)
    yield RewardSpec("boxed_remote_rm", boxed_remote_rm, asked, "remote_rm of the last box", 300.0, isolation=loop)
    yield RewardSpec("format", shape, FormatSettings, "1 when the response has the expected form", isolation=loop)
    yield RewardSpec("boxed_format", shape, FormatSettings, "format", isolation=loop)
