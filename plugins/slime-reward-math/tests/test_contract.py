"""Every reward of the plugin against slime-core's contract kit."""

from slime_core import RewardSpec
from slime_reward_math.plugin import slime_rewards
from slime_testing import RewardContract, make_sample


def spec(name: str) -> RewardSpec:
    return next(each for each in slime_rewards() if each.name == name)


class TestDapo(RewardContract):
    choice = spec("dapo")
    good = make_sample(response="So.\nAnswer: 34", label="34")
    bad = make_sample(response="So.\nAnswer: 35", label="34")


class TestGpqa(RewardContract):
    choice = spec("gpqa")
    good = make_sample(response="The answer is B.", label="B")
    bad = make_sample(response="The answer is C.", label="B")


class TestF1(RewardContract):
    choice = spec("f1")
    good = make_sample(response="the brown fox", label="a quick brown fox")
    bad = make_sample(response="a dog", label="a quick brown fox")


class TestIfbench(RewardContract):
    choice = spec("ifbench")
    needs_label = False
    good = make_sample(response="No commas here.", metadata={"instruction_id_list": ["punctuation:no_comma"]})
    bad = make_sample(response="Commas, here.", metadata={"instruction_id_list": ["punctuation:no_comma"]})


class TestFormat(RewardContract):
    choice = spec("format")
    needs_label = False
    good = make_sample(response=r"<think>2+2</think> \boxed{4}")
    bad = make_sample(response="4")
