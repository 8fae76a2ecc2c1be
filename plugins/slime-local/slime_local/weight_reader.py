"""WeightReader: a published version's weights as the flat vector of a model, copied only if necessary.

Example:

    reader = WeightReader(model, torch.device("cpu"), engine=0, worker=1)
    model.bind(reader.read(channel, 3))
"""

from collections.abc import Mapping, Sequence

import torch

from slime_core.errors import ModelError
from slime_core.roles import WeightChannel, WeightReceiver, WeightSlot
from slime_local.model.base import LocalModel
from slime_local.model.weights import Slot


class WeightReader:
    """One worker's end of the current weight channel."""

    def __init__(self, model: LocalModel, device: torch.device, engine: int, worker: int) -> None:
        """Read for a model on a device, in this worker of this engine."""
        self._model, self._device, self._place = model, device, (engine, worker)
        self._channel: WeightChannel | None = None
        self._receiver: WeightReceiver | None = None

    def read(self, channel: WeightChannel, version: int) -> torch.Tensor:
        """All weights of a version, [numel] fp32 on the device.

        Used in place if the channel's memory has the model's layout and lasts; else copied by name.

        Raises:
            ModelError: the channel's slots are not the model's; names the first that does not fit.
            WorkerError: the version cannot be read.
        """
        receiver = self._opened(channel)
        layout = self._model.layout
        if not receiver.keeps_tensors:
            return self._placed(self._copied(dict.fromkeys(slot.name for slot in layout), receiver, version))
        tensors = dict(receiver.read(version))
        flat = flat_of([tensors[slot.name] for slot in layout], layout)
        if flat is None:
            flat = torch.empty(self._model.numel, device=self._device)
            for slot in layout:
                slot.view(flat).copy_(tensors[slot.name])
        return self._placed(flat)

    def _placed(self, flat: torch.Tensor) -> torch.Tensor:
        """The weights on the model's device; on a GPU copied to the old address, which recorded CUDA graphs use."""
        return flat if self._device.type == "cpu" else self._model.flat.copy_(flat)

    def _copied(self, left: dict[str, None], receiver: WeightReceiver, version: int) -> torch.Tensor:
        flat, slots = torch.empty(self._model.numel, device=self._device), {s.name: s for s in self._model.layout}
        for name, tensor in receiver.read(version):
            slots[name].view(flat).copy_(tensor)
            left.pop(name)
        if left:
            raise ModelError(f"version {version} lacks {len(left)} weights, the first is {next(iter(left))}")
        return flat

    def _opened(self, channel: WeightChannel) -> WeightReceiver:
        if self._receiver is None or channel != self._channel:
            check_slots(channel.slots, {slot.name: slot for slot in self._model.layout}, str(self._model.source))
            if self._receiver is not None:
                self._receiver.close()
            self._channel, self._receiver = channel, channel.receiver(*self._place)
        return self._receiver


def check_slots(slots: Sequence[WeightSlot], own: Mapping[str, Slot], model: str) -> None:
    """Check that slots match a model's weights, in any order and any float dtype.

    Raises:
        ModelError: names the first that is not.
    """
    where = f"the trainer's weights do not fit the engine's model, {model}"
    for slot in slots:
        mine = own.get(slot.name)
        if mine is None:
            raise ModelError(f"{where}: the model has no {slot}; it has {_some(own)}")
        if mine.shape != slot.shape:
            raise ModelError(f"{where}: {slot} must have the shape {mine.shape}")
        if not slot.dtype.is_float:
            raise ModelError(f"{where}: {slot} cannot be converted to float32")
    sent = {slot.name for slot in slots}
    for name, mine in own.items():
        if name not in sent:
            raise ModelError(f"{where}: {name} {mine.shape} is missing; the trainer sends {_some(sent)}")


def flat_of(tensors: Sequence[torch.Tensor], layout: Sequence[Slot]) -> torch.Tensor | None:
    """The flat vector over these tensors without a copy; None if their memory does not match the layout."""
    first = tensors[0]
    start = first.data_ptr()
    lies = all(
        tensor.dtype == torch.float32 and tensor.is_contiguous() and tensor.data_ptr() == start + 4 * slot.offset
        for tensor, slot in zip(tensors, layout, strict=True)
    )
    last = layout[-1]
    if not lies or first.storage_offset() * 4 + 4 * (last.offset + last.numel) > first.untyped_storage().nbytes():
        return None
    return first.as_strided((last.offset + last.numel,), (1,))


def _some(names: Mapping[str, object] | set[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")
