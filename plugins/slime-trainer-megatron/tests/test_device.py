"""A rank on a device other than the CPU makes the same steps, and frees its tensors.

The device is one for which the CPU computes, and which refuses the CPU's tensors as a GPU does.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import torch
from models_and_steps import dealt, setup_of, steps_of, write_model

from slime_core.errors import ConfigError
from slime_core.roles import Choice, Critic, RankSetup, Reference, StepResult, TrainBatch
from slime_testing.tensors import second_device
from slime_train.estimators.ppo import PpoSettings
from slime_trainer_megatron.rank import MegatronRank, use_device

LONG = pytest.mark.long
PPO = Choice("advantage", "slime-train/ppo", "slime-train", PpoSettings())


@pytest.fixture
def only_second_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The device; if the test sets it as default, new tensors are created on it until the test ends."""
    second_device.register()
    # A tensor that Python computes for cannot be pointed at another one's memory, as Megatron does between layers.
    monkeypatch.setattr("megatron.core.utils._kernel_make_viewless_tensor", lambda given, _: given.clone())
    with torch.autograd.set_multithreading_enabled(False):
        yield second_device.NAME
    # Where something is computed again, torch enters the default device's context in itself, and would not leave it.
    entered = torch._GLOBAL_DEVICE_CONTEXT  # noqa: SLF001  # torch has no public name for it
    if (context := getattr(entered, "device_context", None)) is not None:
        context.prev_mode = None
    torch.set_default_device(None)
    use_device("cpu", 0)


def on(device: str, setup: RankSetup) -> MegatronRank:
    """Make the device available only here, because torch's checkpoints would request a stream from it."""
    setup.settings.__dict__["device"] = device
    with second_device.available():
        return MegatronRank(0, 1, setup)


def trained(device: str, setup: RankSetup, folder: Path, batches: list[TrainBatch]) -> tuple[list[StepResult], object]:
    """Two steps, a checkpoint, and a third step of a new rank that resumes from it."""
    rank = on(device, setup)
    results = [rank.train_step(batch) for batch in batches[:2]]
    rank.save(folder)
    rank.finish_save(wait=True)
    again = on(device, setup)
    again.load(folder)
    results += [again.train_step(batches[2]), again.measure(batches[2])]
    return results, {name: each.cpu() for name, each in again.weights()}


@pytest.mark.parametrize(
    ("family", "settings", "fields"),
    [
        ("qwen3", {"max_tokens_per_gpu": 200}, {}),
        pytest.param("qwen3", {"freeze_params_name_list": ["embedding"]}, {"reference": True}, marks=LONG),
        pytest.param("qwen2", {}, {"advantage": PPO, "critic": True}, marks=LONG),
        pytest.param("qwen3_moe", {"moe_aux_loss_coeff": 0.1, "use_rollout_routing_replay": True}, {}, marks=LONG),
        pytest.param("qwen3", {}, {"bf16": True}, marks=LONG),
        pytest.param("deepseek_v3", {"mtp_num_layers": 1}, {}, marks=LONG),
    ],
)
def test_training_on_a_device_equals_the_cpu(
    family: str,
    settings: dict[str, object],
    fields: Mapping[str, object],
    tmp_path: Path,
    only_second_device: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = {"num_nextn_predict_layers": 1} if "mtp_num_layers" in settings else {}
    model = write_model(tmp_path / "model", family, **changes)
    steps = [dealt(rows, 1, at)[0] for at, rows in enumerate(steps_of(model, 3))]
    made = {**fields}
    if "reference" in made:
        made["reference"] = Reference(model, use_kl_loss=True, kl_loss_coef=0.1)
    if "critic" in made:
        made["critic"] = Critic(model, setup_of(model, tmp_path, {}).optim, value_clip=0.2, num_critic_only_steps=0)
    setup = setup_of(model, tmp_path, {"num_gpus": 1, **settings}, **made)
    here = trained("cpu", setup, tmp_path / "here", steps)
    # Megatron keeps a tensor on the device of the first loss.
    monkeypatch.setattr("megatron.core.transformer.moe.moe_utils.MoEAuxLossAutoScaler.main_loss_backward_scale", None)
    there = trained(only_second_device, setup, tmp_path / "there", steps)
    bf16 = "bf16" in fields
    for mine, theirs in zip(here[0], there[0], strict=True):
        compared = ["loss"] if bf16 else list(mine.metrics)
        for name in compared:
            # AdamW amplifies gradients that are only rounding errors, which changed a third step's metrics by 1.4e-4.
            assert theirs.metrics[name] == pytest.approx(mine.metrics[name], rel=2**-6 if bf16 else 1e-3, abs=1e-6), (
                name
            )
    assert isinstance(here[1], dict)
    assert isinstance(there[1], dict)
    assert there[1].keys() == here[1].keys()
    for name, weights in here[1].items():
        assert (there[1][name] - weights).abs().max() < (2e-3 if bf16 else 5e-5), name


def test_missing_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="finds no such device; install a build of torch for it"):
        use_device("cuda", 0)
