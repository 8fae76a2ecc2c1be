"""bf16: weights and products are in bf16; master weights, gradient sums, log-probs and the loss are in fp32."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from layout_runs import Case, by_local, train
from models_and_steps import dealt, setup_of, signal_of, steps_of, write_model
from safetensors.torch import load_file, save_file

from slime_core.roles import WeightDtype
from slime_train import Share
from slime_trainer_megatron.rank import MegatronRank

ONE = {"num_gpus": 1}
ROUNDED = 2.0**-8
"""Maximum relative error of rounding to the 8 significant bits of bf16."""
SMALL = {"max_tokens_per_gpu": 200}
LAYOUTS: Mapping[str, Mapping[str, object]] = {
    "data": SMALL,
    "data, dealt moments": {**SMALL, "use_distributed_optimizer": True},
    "sequence": {"tensor_model_parallel_size": 2, "sequence_parallel": True},
    "pipeline": {"pipeline_model_parallel_size": 2, **SMALL},
    "context": {"context_parallel_size": 2, **SMALL},
    "experts": {"expert_model_parallel_size": 2, **SMALL},
}


def in_bf16(directory: Path, family: str) -> Path:
    """A model whose weights are already rounded to bf16, so that both trainers begin with the same weights."""
    write_model(directory, family)
    tensors = load_file(directory / "model.safetensors")
    save_file({name: each.bfloat16() for name, each in tensors.items()}, directory / "model.safetensors")
    return directory


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return in_bf16(tmp_path / "model", "qwen3")


def log_probs_of(rank: MegatronRank, share: Share) -> torch.Tensor:
    """Outputs of the rank's passes, before they are copied into a tensor of another dtype."""
    log_probs = list[torch.Tensor]()

    def use(samples: Sequence[int], found: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        log_probs.append(found[0])
        return found[0].sum()

    rank.passes.run(share, signal_of(share, (0, 5, 9)), use, trains=False)
    (one,) = log_probs
    return one


@pytest.mark.parametrize("family", ["qwen3", "deepseek_v3"])
def test_bf16_step_is_near_fp32(family: str, tmp_path: Path) -> None:
    model = in_bf16(tmp_path / "model", family)
    (rows,) = steps_of(model, 1)
    rounding, exact = (MegatronRank(0, 1, setup_of(model, tmp_path, ONE, bf16=bf16)) for bf16 in (True, False))
    share = Share.of(dealt(rows, 1)[0], setup_of(model, tmp_path, ONE))
    found, wanted = (log_probs_of(rank, share) for rank in (rounding, exact))
    assert found.dtype == torch.float32
    far = (found - wanted).abs()
    assert 0 < far.mean() < 4 * ROUNDED
    rounded, near = (rank.train_step(dealt(rows, 1)[0]) for rank in (rounding, exact))
    assert rounded.scalars["grad_norm"] == pytest.approx(near.scalars["grad_norm"], rel=4 * ROUNDED)
    weights = dict(exact.weights())
    for name, each in rounding.weights():
        assert each.dtype == (torch.float32 if "e_score" in name else torch.bfloat16)
        assert (each.float() - weights[name]).abs().max() < ROUNDED * weights[name].abs().max() + 4e-4, name


def test_published_weights_equal_hf_and_slots(model: Path, tmp_path: Path) -> None:
    (rows,) = steps_of(model, 1)
    rank = MegatronRank(0, 1, setup_of(model, tmp_path, ONE, bf16=True))
    rank.train_step(dealt(rows, 1)[0])
    rank.save(tmp_path / "saved")
    rank.finish_save(wait=True)
    files = load_file(tmp_path / "saved" / "hf" / "model.safetensors")
    slots = {slot.name: slot for slot in rank.weight_slots()}
    for name, each in rank.weights():
        assert torch.equal(each, files[name])
        assert (each.dtype, files[name].dtype) == (getattr(torch, slots[name].dtype.value),) * 2
    assert {slot.dtype for slot in slots.values()} >= {WeightDtype.BFLOAT16}
    assert '"dtype": "bfloat16"' in (tmp_path / "saved" / "hf" / "config.json").read_text("utf-8")


@pytest.mark.layouts
@pytest.mark.timeout(600)
def test_bf16_layouts_are_near_fp32_and_resume(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "qwen3_moe")
    bf16 = {"bf16": True}
    whole = [Case(name, model, {"num_gpus": 2, **layout}, bf16, save=2) for name, layout in LAYOUTS.items()]
    again = [Case(f"{name} again", model, {"num_gpus": 2, **LAYOUTS[name]}, bf16, load=name) for name in LAYOUTS]
    elsewhere = Case("elsewhere", model, {"num_gpus": 2, **LAYOUTS["pipeline"]}, bf16, load="data, dealt moments")
    results, local = train(tmp_path, [*whole, *again, elsewhere], ranks=2), by_local(tmp_path, Case("local", model, {}))
    for case in whole:
        mine = results[case.name]
        assert mine.losses == pytest.approx(local.losses, rel=0, abs=4 * ROUNDED), case.name
        assert mine.norms == pytest.approx(local.norms, rel=16 * ROUNDED), case.name
        assert mine.published, case.name
        later = results[f"{case.name} again"]
        assert later.losses == mine.losses[2:], case.name
        assert all(torch.equal(each, mine.weights[name]) for name, each in later.weights.items()), case.name
    assert results["elsewhere"].losses == pytest.approx(results["data, dealt moments"].losses[2:], rel=0, abs=ROUNDED)
