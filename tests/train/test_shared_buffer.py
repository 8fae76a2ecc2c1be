"""The shared weight buffer: each version in its half, the other as it was; other buckets than agreed are refused."""

from pathlib import Path

import pytest
import torch

from slime_core.errors import WorkerError
from slime_core.roles import Transport, WeightChannel, WeightSlot
from slime_core.train.shared_buffer import open_half, write_version

SLOTS = [WeightSlot("embed", (2, 3), 0), WeightSlot("norm", (2,), 6), WeightSlot("head", (3, 1), 8)]
SHAPES = [(slot.name, slot.shape) for slot in SLOTS]


@pytest.fixture
def channel(tmp_path: Path) -> WeightChannel:
    made = WeightChannel(Transport.SHARED_BUFFER, tmp_path / "weights.bin", SLOTS)
    made.path.write_bytes(bytes(2 * 4 * made.numel))
    return made


def buckets(first: float, shapes: list[tuple[str, tuple[int, ...]]] = SHAPES) -> list[tuple[str, torch.Tensor]]:
    """Tensors of the shapes, counting up from `first` without a gap."""
    found = []
    for name, shape in shapes:
        tensor = torch.arange(first, first + torch.Size(shape).numel()).view(shape)
        found.append((name, tensor))
        first += tensor.numel()
    return found


def test_two_versions_stand_side_by_side_and_a_third_replaces_the_first(channel: WeightChannel) -> None:
    write_version(channel, 4, iter(buckets(100)))
    write_version(channel, 5, iter(buckets(200)))
    assert open_half(channel, 4).tolist() == list(range(100, 111))
    assert open_half(channel, 5).tolist() == list(range(200, 211))
    write_version(channel, 6, iter(buckets(300)))
    assert open_half(channel, 6).tolist() == list(range(300, 311))
    assert open_half(channel, 5).tolist() == list(range(200, 211))


def test_the_file_is_two_copies_in_fp32_and_who_has_it_mapped_sees_what_is_written(channel: WeightChannel) -> None:
    """An engine maps a half once, and another process writes: what reaches the file is what the mapping shows."""
    mapped = open_half(channel, 1)
    write_version(channel, 1, ((name, tensor.double()) for name, tensor in buckets(7)))
    assert mapped.tolist() == list(range(7, 18))
    assert torch.frombuffer(bytearray(channel.path.read_bytes()), dtype=torch.float32).tolist() == [
        *[0.0] * 11,
        *range(7, 18),
    ]


def test_a_version_is_fp32_whatever_dtype_a_model_is_loaded_in(channel: WeightChannel) -> None:
    """Libraries set the default dtype while they load a model of another."""
    write_version(channel, 0, iter(buckets(1)))
    torch.set_default_dtype(torch.float64)
    try:
        assert open_half(channel, 0).tolist() == list(range(1, 12))
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("yielded", "says"),
    [
        ([SHAPES[0], SHAPES[2], SHAPES[1]], r"^weight bucket head \(3, 1\) does not follow .*name='norm'"),
        ([SHAPES[0], ("norm", (1, 2))], r"^weight bucket norm \(1, 2\) does not follow .*shape=\(2,\)"),
        ([SHAPES[0], ("bias", (2,))], r"^weight bucket bias \(2,\) does not follow .*name='norm'"),
        ([*SHAPES, ("more", (1,))], r"^weight bucket more \(1,\) does not follow .*: None$"),
        (SHAPES[:2], r"^the trainer yielded no bucket for head$"),
        ([], r"^the trainer yielded no bucket for embed$"),
    ],
)
def test_buckets_that_are_not_the_layout_are_refused(
    channel: WeightChannel, yielded: list[tuple[str, tuple[int, ...]]], says: str
) -> None:
    with pytest.raises(WorkerError, match=says):
        write_version(channel, 0, iter(buckets(0, yielded)))
