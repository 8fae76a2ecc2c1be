"""The local trainer: what one rank computes, and that two ranks together compute the same."""

import asyncio
import dataclasses
import math
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from slime_core.catalog import Catalog
from slime_core.errors import CheckpointError, NonFiniteError
from slime_core.local.launcher import LocalLauncher
from slime_core.local.rank import LocalRank
from slime_core.roles import (
    Choice,
    Draw,
    LauncherSetup,
    Settings,
    StepResult,
    TrainBatch,
    Transport,
    WeightChannel,
    WorkerGroupSpec,
)
from slime_core.sample import Group, GroupId, Sample, Status
from slime_core.train.prepare import Preparation
from slime_core.train.settings import (
    GspoSettings,
    ReinforcePlusPlusBaselineSettings,
)
from slime_core.train.shared_buffer import open_half
from slime_core.train.split import split_step
from tests.ranks import rank_setup

HOST = "slime_core.train.rank_host:RankHost"
Ranks = Callable[..., LocalRank]


@pytest.fixture
def rank_of(tiny_model: Path, tmp_path: Path) -> Ranks:
    """`rank_of(loss=SFT)`: a rank in this process."""
    return lambda **fields: LocalRank(0, 1, rank_setup(tiny_model, tmp_path, **fields))


WHITENED = Choice("advantage", "reinforce_plus_plus_baseline", "slime-core", ReinforcePlusPlusBaselineSettings())
SFT = Choice("loss", "sft_loss", "slime-core", Settings())
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


def flat(rank: LocalRank) -> torch.Tensor:
    return torch.cat([tensor.reshape(-1) for _, tensor in rank.weights()]).clone()


@pytest.mark.parametrize(
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


def test_an_empty_share_is_a_step_too(rank_of: Ranks) -> None:
    rank = rank_of()
    before = flat(rank)
    result = rank.train_step(split_step([], 1, rollout_id=0)[0])
    assert (result.tokens, result.scalars["grad_norm"]) == (0, 0.0)
    assert torch.allclose(flat(rank), before, atol=1e-4)


def test_a_nan_stops_the_step_before_the_weights_change(rank_of: Ranks) -> None:
    rank = rank_of()
    before, (batch,) = flat(rank), batches(1)
    nan = array("f", [math.nan] * len(batch.rollout_log_probs_T))
    poisoned = dataclasses.replace(batch, rollout_log_probs_T=nan)
    with pytest.raises(NonFiniteError, match="loss"):
        rank.train_step(poisoned)
    assert torch.equal(flat(rank), before)


def test_saved_and_loaded_it_continues_bit_for_bit(rank_of: Ranks, tmp_path: Path) -> None:
    rank = rank_of()
    rank.train_step(batches(1)[0])
    rank.save(tmp_path / "saved")
    rank.train_step(batches(1)[0])
    again = rank_of()
    again.load(tmp_path / "saved")
    again.train_step(batches(1)[0])
    assert torch.equal(flat(again), flat(rank))


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


def test_the_saved_model_is_an_hf_directory(rank_of: Ranks, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    rank = rank_of()
    rank.train_step(batches(1)[0])
    rank.save(tmp_path / "saved")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "saved" / "hf")
    state = model.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in rank.weights())
    assert AutoTokenizer.from_pretrained(tmp_path / "saved" / "hf").eos_token_id == model.config.eos_token_id


def test_a_checkpoint_of_another_model_is_refused(rank_of: Ranks, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    (tmp_path / "optim").mkdir()
    small = {name: torch.zeros(3) for name in ("weights", "m", "v")} | {"steps": torch.tensor(1)}
    save_file(small, tmp_path / "optim" / "adamw.safetensors")
    with pytest.raises(CheckpointError, match="of a model of 3 weights"):
        rank_of().load(tmp_path)


@pytest.mark.timeout(120)
def test_two_ranks_in_processes_train_and_publish_what_one_rank_does(
    rank_of: Ranks, tiny_model: Path, tmp_path: Path
) -> None:
    """With an estimator that needs the moments of the whole step."""
    alone = rank_of(advantage=WHITENED)
    expected = [alone.train_step(batches(1)[0]) for _ in range(3)]

    async def together() -> tuple[list[list[StepResult]], torch.Tensor]:
        launcher = LocalLauncher(LauncherSetup(_make, 0, scratch=tmp_path))
        setup = rank_setup(tiny_model, tmp_path, advantage=WHITENED, settings={"ranks": 2})
        registered = Catalog.discover().find("trainer", "local")
        trainer = Choice("trainer", registered.qualified, registered.plugin, Settings())
        spec = WorkerGroupSpec("trainer", 2, HOST, {"trainer": trainer, "setup": setup})
        group = await launcher.start(spec)
        try:
            results = [await group.call("train_step", batches(2), timeout_s=60) for _ in range(3)]
            slots = (await group.call("weight_slots"))[0]
            channel = WeightChannel(Transport.SHARED_BUFFER, tmp_path / "weights.bin", slots)  # type: ignore[arg-type]
            channel.path.write_bytes(bytes(8 * channel.numel))
            await group.call("publish", [(channel, 7)] * 2)
            nothing = await group.call("train_step", split_step([], 2, rollout_id=3), timeout_s=60)
            assert [(step.tokens, step.scalars["grad_norm"]) for step in nothing] == [(0, 0.0)] * 2  # type: ignore[attr-defined]
            return results, open_half(channel, 7).clone()  # type: ignore[return-value]
        finally:
            await launcher.close()

    results, published = asyncio.run(together())
    for steps, single in zip(results, expected, strict=True):
        assert sum(step.tokens for step in steps) == single.tokens
        assert steps[0].scalars == pytest.approx(single.scalars, rel=1e-3)
    assert torch.allclose(published, flat(alone), atol=2e-4)


def _make(role: str, name: str, **settings: object) -> object:
    raise LookupError(name)
