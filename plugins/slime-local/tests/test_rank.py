"""The local trainer: what one rank computes, and that two ranks together compute the same."""

import asyncio
import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from safetensors.torch import load_file, save_file

from slime_core.batching.prepare import Preparation
from slime_core.batching.split import split_step
from slime_core.catalog import Catalog
from slime_core.errors import CheckpointError, NonFiniteError
from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import (
    Choice,
    Critic,
    Draw,
    LauncherSetup,
    Reference,
    Settings,
    StepResult,
    Teacher,
    TrainBatch,
    WeightSlot,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_core.sample import Group, GroupId, Json, Sample, Status
from slime_local.model import load_model
from slime_local.optimizer import FlatAdamW
from slime_local.rank import LocalRank
from slime_train.estimators.ppo import PpoSettings
from slime_train.estimators.reinforce_plus_plus_baseline import ReinforcePlusPlusBaselineSettings
from slime_train.settings import GspoSettings, PolicyLossSettings, TisSettings
from tests.channels import flat as published_in
from tests.channels import opened
from tests.ranks import optim, rank_setup
from tests.tables import table

HOST = "slime_train.rank_host:RankHost"
PRELOAD = ("slime_local._preload",)
Ranks = Callable[..., LocalRank]


@pytest.fixture
def rank_of(tiny_model: Path, tmp_path: Path) -> Ranks:
    """`rank_of(loss=SFT)`: a rank in this process."""
    return lambda **fields: LocalRank(0, 1, rank_setup(tiny_model, tmp_path, **fields))


WHITENED = Choice("advantage", "reinforce_plus_plus_baseline", "slime-core", ReinforcePlusPlusBaselineSettings())
SFT = Choice("loss", "sft_loss", "slime-core", Settings())
TIS = Choice("correction", "tis", "slime-core", TisSettings())
GSPO = Choice("loss", "gspo", "slime-core", GspoSettings(eps_clip=0.2, eps_clip_high=0.3, entropy_coef=0.1))


def group(number: int, rewards: list[float], seed: int, *, vocab: int = 200, masked: bool = False) -> Group:
    """Samples of one prompt; every fourth token is the environment's where `masked`."""
    draw = torch.Generator().manual_seed(seed)
    prompt = torch.randint(3, vocab, (5 + number,), generator=draw).tolist()
    samples = []
    for index, reward in enumerate(rewards):
        length = int(torch.randint(2, 9, (1,), generator=draw))
        sample = Sample(
            index=index,
            group_index=number,
            tokens=[*prompt, *torch.randint(3, vocab, (length,), generator=draw).tolist()],
            response_length=length,
            loss_mask=[int(not masked or place % 4 != 3) for place in range(length)],
            rollout_log_probs=(-5.5 + torch.rand(length, generator=draw)).tolist(),
            reward=reward,
            weight_versions=["0"],
            status=Status.COMPLETED,
        )
        samples.append(sample)
    return Group(GroupId("test", 0, number, number), samples)


GROUPS = [
    group(0, [0.0, 1.0, 1.0], 1),
    group(1, [1.0, 1.0], 2),
    group(2, [0.0, 0.5, 1.0, 0.0], 3),
    group(3, [1.0, 0.0], 4),
]


def batches(ranks: int, groups: Sequence[Group] = GROUPS) -> list[TrainBatch]:
    prepared = Preparation().prepare(Draw(list(groups), [1.0] * len(groups)), rollout_id=0)
    return split_step(prepared, ranks, rollout_id=0)


async def stepped(group: WorkerGroup, shares: Sequence[TrainBatch]) -> list[StepResult]:
    """A rollout of one step, a share a rank."""
    await group.call("begin_rollout", [[share] for share in shares], timeout_s=60)
    return await group.call("train_step", [0] * len(shares), timeout_s=60)  # type: ignore[return-value]


def overflow(file: Path) -> None:
    """Make the last first moment of a saved optimizer infinite."""
    tensors = {name: each.clone() for name, each in load_file(file).items()}
    tensors["m"][-1] = math.inf
    save_file(tensors, file)


def flat(rank: LocalRank) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for _, tensor in rank.weights()]).clone()


def variants(models: tuple[Path, Path]) -> dict[str, dict[str, Any]]:
    """Fields of a rank's setup, by what they are about."""
    policy, other = models
    reference = Reference(other, use_kl_loss=True, kl_loss_coef=0.1, kl_loss_type="k2", update_interval=2)
    in_rewards = Reference(other, kl_coef=0.3, kl_loss_type="k1")
    critic = Critic(policy, optim(2e-3), value_clip=0.2, num_critic_only_steps=1)
    ppo = Choice("advantage", "ppo", "slime-core", PpoSettings(lambd=0.9))
    return {
        "policy": {},
        "bf16": {"bf16": True},
        "mean over samples": {"calculate_per_token_loss": False},
        "constant length": {"calculate_per_token_loss": False, "constant_loss_length": 5, "loss": GSPO},
        "whitened": {"calculate_per_token_loss": False, "advantage": WHITENED, "loss": GSPO},
        "low rank": {"settings": {"lora_rank": 4, "lora_target_modules": ["q_proj", "down_proj"]}},
        "frozen": {"settings": {"freeze_params_name_list": ["embed"], "gradient_checkpointing": True}},
        "reference": {"reference": reference},
        "KL in the rewards": {"reference": in_rewards, "advantage": WHITENED},
        "teacher": {"teacher": Teacher(other, 0.5)},
        "critic": {"critic": critic, "advantage": ppo, "calculate_per_token_loss": False},
        "older weights": {"correction": TIS, "old_actor_lag": 1},
    }


VARIANTS = list(variants((Path(), Path())))


@pytest.fixture
def rank_in(models: tuple[Path, Path], tmp_path: Path) -> Ranks:
    """`rank_in("critic")`: a rank of `variants` in this process; more trainer settings as keywords."""

    def make(name: str, **settings: Json) -> LocalRank:
        fields = variants(models)[name]
        given = {**fields, "settings": {**fields.get("settings", {}), **settings}}
        rank = LocalRank(0, 1, rank_setup(models[0], tmp_path, **given))
        rank.published(0)
        return rank

    return make


def rollout(rank: LocalRank, number: int) -> StepResult:
    """Train on a rollout and publish what comes of it, as a run does."""
    result = rank.train_step(dataclasses.replace(batches(1)[0], rollout_id=number))
    rank.published(number + 1)
    return result


@table("name", [each for each in VARIANTS if each != "bf16"])  # its rounding depends on the micro-batch
def test_micro_batches_do_not_change_the_step(rank_in: Ranks, name: str) -> None:
    whole, split = rank_in(name), rank_in(name, max_tokens_per_micro_batch=1)
    for number in range(2):
        one, other = rollout(whole, number), rollout(split, number)
        assert one.tokens == other.tokens
        assert one.scalars == pytest.approx(other.scalars, rel=1e-3, abs=1e-4)
        assert dict(one.metrics) == pytest.approx(dict(other.metrics), rel=1e-3, abs=1e-3)


@table("name", VARIANTS)
def test_resume_is_bit_exact(rank_in: Ranks, tmp_path: Path, name: str) -> None:
    one, other, saved = rank_in(name), rank_in(name), tmp_path / name
    before = flat(one)
    rollout(one, 0)
    second = rollout(one, 1)
    assert not torch.equal(flat(one), before)
    assert name != "older weights" or second.metrics["ppo_kl"] != 0.0, "version 0 generated rollout 1"
    one.save(saved)
    assert torch.equal(load_model(saved / "hf").flat, flat(one))
    other.load(saved)
    other.published(2)
    for number in (2, 3):
        assert rollout(one, number) == rollout(other, number)
    assert torch.equal(flat(one), flat(other))
    with pytest.raises(CheckpointError, match="trained weights, and this run has"):
        rank_in("policy", lora_rank=2).load(saved)


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 4}, {"freeze_params_name_list": ["norm"]}], ids=str)
def test_non_finite_weight_is_named(rank_of: Ranks, tmp_path: Path, settings: dict[str, Any]) -> None:
    rank = rank_of(settings=settings)
    rank.save(tmp_path / "saved", hf=False)
    overflow(tmp_path / "saved" / "optim" / FlatAdamW.FILE)
    rank.load(tmp_path / "saved")
    with pytest.raises(NonFiniteError, match=r"optimizer step 1: weight \S+ has \d+ of \d+ values that are not finite"):
        rank.train_step(batches(1)[0])


def test_measure_returns_the_loss_without_a_step(rank_of: Ranks) -> None:
    rank = rank_of(loss=SFT)
    before = flat(rank)
    measured = rank.measure(batches(1)[0])
    assert torch.equal(flat(rank), before)
    stepped = rank.train_step(batches(1)[0])
    assert measured.metrics == stepped.metrics
    assert measured.scalars == {}


def rollout_of(steps: int, rollout_id: int = 0) -> list[TrainBatch]:
    """The same groups at every step."""
    return [dataclasses.replace(batches(1)[0], rollout_id=rollout_id, step=step) for step in range(steps)]


def test_old_log_probs_clip_later_steps(rank_of: Ranks) -> None:
    """Steps so long that ratios leave the clip; to the log-probs of the step itself they would all be 1."""
    rank = rank_of(lr=1e-2, correction=TIS)
    rollout = rollout_of(4)
    rank.begin_rollout(rollout)
    results = [rank.train_step(batch) for batch in rollout]
    clipped = [result.metrics["pg_clipfrac"] / result.tokens for result in results]
    assert clipped[0] == 0.0
    assert min(clipped[1:]) > 0.05
    assert [result.metrics["ppo_kl"] == 0.0 for result in results] == [True, False, False, False]
    # What the correction answers for does not change in a rollout: sampler against policy before it.
    assert [result.metrics["tis"] for result in results[1:]] == pytest.approx([results[0].metrics["tis"]] * 3, rel=1e-5)


def test_old_log_probs_equal_the_steps_bitwise(rank_of: Ranks) -> None:
    """So that at a learning rate of 0 every step of a rollout is its first one."""
    rank = rank_of(lr=0.0, correction=TIS, loss=GSPO)
    rollout = rollout_of(3)
    rank.begin_rollout(rollout)
    first, *others = [rank.train_step(batch) for batch in rollout]
    assert all(other == first for other in others)
    assert first.metrics["ppo_kl"] == 0.0


@pytest.mark.timeout(120)
def test_two_ranks_train_like_one(rank_of: Ranks, tiny_model: Path, tmp_path: Path) -> None:
    """With an estimator that needs the moments of the whole step."""
    alone = rank_of(advantage=WHITENED)
    expected = [alone.train_step(batches(1)[0]) for _ in range(3)]

    async def together() -> tuple[list[list[StepResult]], torch.Tensor]:
        launcher = LocalLauncher(LauncherSetup(make_nothing, 0, scratch=tmp_path))
        setup = rank_setup(tiny_model, tmp_path, advantage=WHITENED, settings={"ranks": 2})
        registered = Catalog.discover().find("trainer", "local")
        trainer = Choice("trainer", registered.qualified, registered.plugin, Settings())
        spec = WorkerGroupSpec("trainer", 2, HOST, {"trainer": trainer, "setup": setup}, preload=PRELOAD)
        group = await launcher.start(spec)
        try:
            results = [await stepped(group, batches(2)) for _ in range(3)]
            slots = (await group.call("weight_slots"))[0]
            channel = opened(tmp_path, cast(Sequence[WeightSlot], slots))
            await group.call("connect", [channel] * 2)
            await group.call("publish", [(7, ())] * 2)
            nothing = await stepped(group, split_step([], 2, rollout_id=3))
            assert [(step.tokens, step.scalars["grad_norm"]) for step in nothing] == [(0, 0.0)] * 2
            return results, published_in(channel, 7)
        finally:
            await launcher.close()

    results, published = asyncio.run(together())
    for steps, single in zip(results, expected, strict=True):
        assert sum(step.tokens for step in steps) == single.tokens
        assert steps[0].scalars == pytest.approx(single.scalars, rel=1e-3)
    assert torch.allclose(published, flat(alone), atol=2e-4)


def make_nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)


NEAR_ZERO_BONUS = Choice("loss", "policy_loss", "slime-core", PolicyLossSettings(entropy_coef=1e-30))


def test_loss_means_count_skipped_tokens(rank_of: Ranks) -> None:
    """Group 1 has no advantage, and is not computed: what it would have added to a loss is known, and is 0."""
    skipping, computing = rank_of(), rank_of(loss=NEAR_ZERO_BONUS)
    some, everything = skipping.train_step(batches(1)[0]), computing.train_step(batches(1)[0])
    assert some.tokens < everything.tokens == batches(1)[0].step_tokens
    for name in ("pg_loss", "pg_clipfrac"):
        assert name in some.over_all_tokens
        assert some.metrics[name] == pytest.approx(everything.metrics[name], rel=1e-5)
    assert "loss" in some.over_all_tokens
    assert not {"entropy_loss", "ppo_kl", "train_rollout_logprob_abs_diff"} & some.over_all_tokens
