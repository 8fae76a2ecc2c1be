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
    Draw,
    LauncherSetup,
    Settings,
    StepResult,
    TrainBatch,
    WeightSlot,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_core.sample import Group, GroupId, Sample, Status
from slime_local.optimizer import FlatAdamW
from slime_local.rank import LocalRank
from slime_train.estimators.reinforce_plus_plus_baseline import ReinforcePlusPlusBaselineSettings
from slime_train.settings import GspoSettings, PolicyLossSettings, TisSettings
from tests.channels import flat as published_in
from tests.channels import opened
from tests.ranks import rank_setup
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
NEAR_ZERO_BONUS = Choice("loss", "policy_loss", "slime-core", PolicyLossSettings(entropy_coef=1e-30))
GSPO = Choice("loss", "gspo", "slime-core", GspoSettings(eps_clip=0.2, eps_clip_high=0.3, entropy_coef=0.1))


def group(number: int, rewards: list[float], seed: int) -> Group:
    draw = torch.Generator().manual_seed(seed)
    prompt = torch.randint(3, 200, (5 + number,), generator=draw).tolist()
    samples = []
    for index, reward in enumerate(rewards):
        length = int(torch.randint(1, 9, (1,), generator=draw))
        response = torch.randint(3, 200, (length,), generator=draw).tolist()
        samples.append(
            Sample(
                index=index,
                group_index=number,
                tokens=[*prompt, *response],
                response_length=length,
                loss_mask=[1] * length,
                rollout_log_probs=(-5.5 + torch.rand(length, generator=draw)).tolist(),
                reward=reward,
                weight_versions=["0"],
                status=Status.COMPLETED,
            )
        )
    made = Group(GroupId("test", 0, number, number), samples)
    made.freeze()
    return made


GROUPS = [
    group(0, [0.0, 1.0, 1.0], 1),
    group(1, [1.0, 1.0], 2),
    group(2, [0.0, 0.5, 1.0, 0.0], 3),
    group(3, [1.0, 0.0], 4),
]


def batches(ranks: int, preparation: Preparation = Preparation()) -> list[TrainBatch]:  # noqa: B008  # frozen
    return split_step(preparation.of(Draw(GROUPS, [1.0] * len(GROUPS)), rollout_id=0), ranks, rollout_id=0)


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


@table(
    "keys",
    [
        {"calculate_per_token_loss": True},
        {"calculate_per_token_loss": False},
        {"calculate_per_token_loss": False, "constant_loss_length": 5, "loss": GSPO},
        {"calculate_per_token_loss": False, "advantage": WHITENED, "loss": GSPO},
    ],
)
def test_micro_batches_do_not_change_the_step(rank_of: Ranks, keys: dict[str, Any]) -> None:
    whole = rank_of(**keys)
    split = rank_of(**keys, settings={"max_tokens_per_micro_batch": 1})
    one, other = whole.train_step(batches(1)[0]), split.train_step(batches(1)[0])
    assert one.tokens == other.tokens
    assert one.scalars == pytest.approx(other.scalars, rel=1e-4)
    assert other.scalars["train_rollout_ratio_min"] < other.scalars["train_rollout_ratio_max"]
    assert {name: pytest.approx(value, rel=1e-3, abs=1e-3) for name, value in one.metrics.items()} == dict(
        other.metrics
    )


def test_a_step_moves_the_weights_against_the_gradient_of_its_loss(rank_of: Ranks) -> None:
    rank = rank_of()
    first = rank.train_step(batches(1)[0])
    for _ in range(5):
        last = rank.train_step(batches(1)[0])
    assert last.metrics["pg_loss"] < first.metrics["pg_loss"]


def test_groups_of_equal_rewards_are_not_computed(rank_of: Ranks) -> None:
    rank = rank_of()
    result = rank.train_step(batches(1)[0])
    alive = [sample for number in (0, 2, 3) for sample in GROUPS[number].samples]
    assert result.tokens <= sum(sample.response_length for sample in alive)
    assert result.tokens < batches(1)[0].step_tokens
    assert result.scores[1] == 0.0
    assert result.scores[0] > 0.0


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 4}, {"freeze_params_name_list": ["norm"]}], ids=str)
def test_a_weight_that_a_step_makes_infinite_is_named(rank_of: Ranks, tmp_path: Path, settings: dict[str, Any]) -> None:
    rank = rank_of(settings=settings)
    rank.save(tmp_path / "saved", hf=False)
    overflow(tmp_path / "saved" / "optim" / FlatAdamW.FILE)
    rank.load(tmp_path / "saved")
    with pytest.raises(NonFiniteError, match=r"optimizer step 1: weight \S+ has \d+ of \d+ values that are not finite"):
        rank.train_step(batches(1)[0])


TRAINERS: list[dict[str, Any]] = [
    {"lora_rank": 4, "lora_target_modules": ["q_proj", "down_proj"]},
    {"freeze_params_name_list": ["embed"], "gradient_checkpointing": True},
]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_training_of_a_part_continues_bit_for_bit_and_exports_merged_weights(
    rank_of: Ranks, tmp_path: Path, trainer: dict[str, Any]
) -> None:
    from transformers import AutoModelForCausalLM

    rank = rank_of(settings=trainer)
    before = flat(rank)
    rank.train_step(batches(1)[0])
    rank.train_step(batches(1)[0])
    assert not torch.equal(flat(rank), before)
    rank.save(tmp_path / "saved")
    state = AutoModelForCausalLM.from_pretrained(tmp_path / "saved" / "hf").state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in rank.weights())
    again = rank_of(settings=trainer)
    again.load(tmp_path / "saved")
    assert torch.equal(flat(again), flat(rank))
    assert again.train_step(batches(1)[0]) == rank.train_step(batches(1)[0])
    assert torch.equal(flat(again), flat(rank))


def test_measuring_a_loss_changes_nothing_and_is_the_next_steps(rank_of: Ranks) -> None:
    rank = rank_of(loss=SFT)
    before = flat(rank)
    measured = rank.measure(batches(1)[0])
    assert torch.equal(flat(rank), before)
    stepped = rank.train_step(batches(1)[0])
    assert measured.metrics == stepped.metrics
    assert measured.scalars == {}


def test_a_checkpoint_of_another_model_is_refused(rank_of: Ranks, tmp_path: Path) -> None:
    (tmp_path / "optim").mkdir()
    small = {name: torch.zeros(3) for name in ("weights", "m", "v")} | {"steps": torch.tensor(1)}
    save_file(small, tmp_path / "optim" / "adamw.safetensors")
    with pytest.raises(CheckpointError, match="of a model of 3 weights"):
        rank_of().load(tmp_path)


def test_a_mean_of_losses_is_over_all_trained_tokens_and_an_entropy_over_the_computed(rank_of: Ranks) -> None:
    """Group 1 has no advantage, and is not computed: what it would have added to a loss is known, and is 0."""
    skipping, computing = rank_of(), rank_of(loss=NEAR_ZERO_BONUS)
    some, everything = skipping.train_step(batches(1)[0]), computing.train_step(batches(1)[0])
    assert some.tokens < everything.tokens == batches(1)[0].step_tokens
    for name in ("pg_loss", "pg_clipfrac"):
        assert name in some.over_all_tokens
        assert some.metrics[name] == pytest.approx(everything.metrics[name], rel=1e-5)
    assert "loss" in some.over_all_tokens
    assert not {"entropy_loss", "ppo_kl", "train_rollout_logprob_abs_diff"} & some.over_all_tokens


TIS = Choice("correction", "tis", "slime-core", TisSettings())


def rollout_of(steps: int, rollout_id: int = 0) -> list[TrainBatch]:
    """The same groups at every step."""
    return [dataclasses.replace(batches(1)[0], rollout_id=rollout_id, step=step) for step in range(steps)]


def test_with_a_correction_later_steps_are_held_near_the_policy_before_the_rollout(rank_of: Ranks) -> None:
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


def test_the_first_step_of_a_rollout_is_the_step_of_a_rollout_of_one(rank_of: Ranks) -> None:
    one, other = rank_of(correction=TIS), rank_of(correction=TIS)
    one.begin_rollout(rollout_of(3))
    assert one.train_step(rollout_of(1)[0]) == other.train_step(rollout_of(1)[0])
    assert torch.equal(flat(one), flat(other))


def test_log_probs_before_a_rollout_are_those_of_a_step_to_the_bit(rank_of: Ranks) -> None:
    """So that at a learning rate of 0 every step of a rollout is its first one."""
    rank = rank_of(lr=0.0, correction=TIS, loss=GSPO)
    rollout = rollout_of(3)
    rank.begin_rollout(rollout)
    first, *others = [rank.train_step(batch) for batch in rollout]
    assert all(other == first for other in others)
    assert first.metrics["ppo_kl"] == 0.0


@pytest.mark.timeout(120)
def test_two_ranks_in_processes_train_and_publish_what_one_rank_does(
    rank_of: Ranks, tiny_model: Path, tmp_path: Path
) -> None:
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
