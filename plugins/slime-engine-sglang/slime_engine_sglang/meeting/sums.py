"""Sums: what SGLang sums of weights that are sent, which come in any order.

SGLang keeps some weights of a checkpoint as one. A part that comes before one that it follows is kept until that comes.

Example:

    sums = Sums(slot.name for slot in channel.slots)
    for name, tensor in sums.among(weights):
        ...
    sums.told()                             # as `slime_engine_sglang.checksums.sums_of` of a file with these weights
"""

import hashlib
from collections.abc import Iterable, Iterator

import torch

from slime_engine_sglang.checksums import DIGITS, joined
from slime_engine_sglang.meeting.changes import bytes_of


class Sums:
    """The sums of one version."""

    def __init__(self, names: Iterable[str]) -> None:
        """Expect weights of these names; none has come yet."""
        self._parts = joined(names)
        self._wholes = {part: whole for whole, parts in self._parts.items() for part in parts}
        self._digests = {whole: hashlib.sha256() for whole in self._parts}
        self._early: dict[str, bytes] = {}

    def among(self, weights: Iterator[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """The same weights, summed on the way."""
        for name, tensor in weights:
            self._take(name, bytes_of(tensor))
            yield name, tensor

    def told(self) -> dict[str, str]:
        """By SGLang's names, once all have come."""
        return {whole: digest.hexdigest()[:DIGITS] for whole, digest in self._digests.items()}

    def _take(self, name: str, body: memoryview) -> None:
        whole = self._wholes[name]
        left, digest = self._parts[whole], self._digests[whole]
        if left[0] != name:
            self._early[name] = bytes(body)
            return
        digest.update(body)
        left.pop(0)
        while left and (early := self._early.pop(left[0], None)) is not None:
            digest.update(early)
            left.pop(0)
