"""What the engine makes of a channel: its own vector where the weights lie so, a copy by name, or a refusal by name."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from slime_core.errors import ModelError
from slime_core.roles import WeightChannel, WeightDtype, WeightSlot
from slime_local.model import LocalModel, load_model
from slime_local.weight_reader import WeightReader
from tests.channels import opened, sent, slots_of
from tests.tables import table


@pytest.fixture
def model(tiny_model: Path) -> LocalModel:
    return load_model(tiny_model)


def reader(model: LocalModel) -> WeightReader:
    return WeightReader(model, torch.device("cpu"), 0, 0)


def buckets(model: LocalModel, dtype: torch.dtype = torch.float32) -> list[tuple[str, torch.Tensor]]:
    return [(slot.name, slot.view(model.flat).to(dtype)) for slot in model.layout]


def test_weights_in_layout_order_are_not_copied(model: LocalModel, tmp_path: Path) -> None:
    channel = sent(opened(tmp_path, slots_of(model)), 0, buckets(model))
    flat = reader(model).read(channel, 0)
    assert torch.equal(flat, model.flat)
    flat[0] += 1  # which is the file's
    assert not torch.equal(reader(model).read(channel, 0), model.flat)


@table("order", [reversed, lambda several: sorted(several, key=lambda slot: slot.name)])
def test_weights_in_another_order_are_matched_by_name(
    model: LocalModel, tmp_path: Path, order: Callable[[list[WeightSlot]], Iterator[WeightSlot]]
) -> None:
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    channel = sent(opened(folder, list(order(slots_of(model)))), 0, buckets(model))
    assert torch.equal(reader(model).read(channel, 0), model.flat)


def test_bf16_weights_are_converted(model: LocalModel, tmp_path: Path) -> None:
    slots = [replace(slot, dtype=WeightDtype.BFLOAT16) for slot in slots_of(model)]
    channel = sent(opened(tmp_path, slots), 0, buckets(model, torch.bfloat16))
    assert torch.equal(reader(model).read(channel, 0), model.flat.bfloat16().float())


@dataclass(frozen=True, slots=True)
class Passing(WeightChannel):
    """Gives every tensor in the same memory, good until the next is asked for; leaves out the last `lost`."""

    weights: list[tuple[str, torch.Tensor]]
    lost: int = 0
    keeps_tensors = False

    def receiver(self, engine: int, worker: int = 0) -> "Passing":  # type: ignore[override]
        return self

    def read(self, version: int) -> Iterator[tuple[str, torch.Tensor]]:
        room = torch.empty(max(tensor.numel() for _, tensor in self.weights))
        for name, tensor in self.weights[: len(self.weights) - self.lost]:
            yield name, room[: tensor.numel()].copy_(tensor.reshape(-1)).view(tensor.shape)

    def close(self) -> None: ...


def test_transient_tensors_are_copied(model: LocalModel) -> None:
    channel = Passing("passing", tuple(slots_of(model)), buckets(model)[::-1])
    assert torch.equal(reader(model).read(channel, 0), model.flat)


def test_version_without_a_weight_is_refused(model: LocalModel) -> None:
    channel = Passing("passing", tuple(slots_of(model)), buckets(model), lost=1)
    with pytest.raises(ModelError, match=r"^version 0 lacks 1 weights, the first is model\.\S+"):
        reader(model).read(channel, 0)


@table(
    "change, says",
    [
        (lambda slots: slots[1:], r"model\.embed_tokens\.weight \(\d+, 128\) is missing; the trainer sends .* more"),
        (
            lambda slots: [*slots, WeightSlot("model.more", (1,))],
            r"the model has no model\.more \(1,\) float32; it has .* and \d+ more",
        ),
        (
            lambda slots: [replace(slots[0], shape=slots[0].shape[::-1]), *slots[1:]],
            r"model\.embed_tokens\.weight \(128, \d+\) float32 must have the shape \(\d+, 128\)",
        ),
        (
            lambda slots: [*slots[:-1], replace(slots[-1], dtype=WeightDtype.INT8)],
            r"\S+ \(\d+.*\) int8 cannot be converted to float32",
        ),
    ],
)
def test_mismatched_slots_are_refused_by_name(
    model: LocalModel, tmp_path: Path, change: Callable[[list[WeightSlot]], list[WeightSlot]], says: str
) -> None:
    channel = opened(Path(tempfile.mkdtemp(dir=tmp_path)), change(slots_of(model)))
    begins = "^the trainer's weights do not fit the engine's model, .*: "
    with pytest.raises(ModelError, match=begins + says):
        reader(model).read(channel, 0)
