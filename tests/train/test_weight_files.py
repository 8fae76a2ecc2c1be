"""Files of weights, whole and portable."""

import asyncio
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from slime_core.errors import RunFolderError, WorkerError
from slime_core.roles import GivesFiles, Settings, TransportSetup, WeightChannel, WeightDtype, WeightSlot
from slime_core.sample import Json
from slime_local.model.weights import lay_out
from slime_local.weight_reader import flat_of
from slime_train.disk import Disk
from slime_train.portable import make_portable, readable_by_both
from slime_train.settings import DiskSettings
from slime_train.shared_buffer import SharedBuffer
from slime_train.weight_file import ALIGNED, WeightFile

SLOTS = [WeightSlot("embed", (2, 3)), WeightSlot("norm", (2,)), WeightSlot("head", (3, 1))]
NAMES = st.lists(st.text(st.characters(codec="utf-8"), min_size=1, max_size=9), min_size=1, max_size=4, unique=True)


def setup(folder: Path) -> TransportSetup:
    return TransportSetup(lambda role, name, **settings: None, 0, scratch=folder)


@pytest.fixture(params=["shared-buffer", "disk", "disk elsewhere"])
def transport(request: pytest.FixtureRequest, tmp_path: Path) -> SharedBuffer | Disk:
    (tmp_path / "scratch").mkdir()
    if request.param == "shared-buffer":
        return SharedBuffer(Settings(), setup(tmp_path / "scratch"))
    folder = tmp_path / "elsewhere" if request.param == "disk elsewhere" else None
    return Disk(DiskSettings(folder=folder), setup(tmp_path / "scratch"))


@pytest.fixture
def channel(transport: SharedBuffer | Disk) -> WeightChannel:
    return asyncio.run(transport.open(SLOTS))


def buckets(first: float, slots: list[WeightSlot] = SLOTS) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that count up from `first` without a gap."""
    for slot in slots:
        yield slot.name, torch.arange(first, first + slot.numel).view(slot.shape)
        first += slot.numel


def read(channel: WeightChannel, version: int) -> list[float]:
    weights = dict(channel.receiver(0).read(version))
    return [number for slot in channel.slots for number in weights[slot.name].reshape(-1).tolist()]


def test_versions_that_leave_numbers_out_take_turns_as_well(channel: WeightChannel) -> None:
    """What is served is never written over, and what is sent again stays where it is."""
    sender = channel.sender(0, 1)
    for version in (0, 2, 2, 4, 8):
        sender.send(version, buckets(100.0 * version), ())
    assert (read(channel, 8), read(channel, 4)) == (list(range(800, 811)), list(range(400, 411)))
    with pytest.raises(WorkerError, match="version 2"):
        read(channel, 2)


def test_what_an_engine_uses_in_place_stays_until_the_next_but_one(channel: WeightChannel) -> None:
    sender, receiver = channel.sender(0, 1), channel.receiver(0)
    sender.send(0, buckets(100), ())
    held = dict(receiver.read(0))
    flat = flat_of(list(held.values()), lay_out([(slot.name, slot.shape) for slot in SLOTS]))
    assert flat is not None, "one dtype, its own order: nothing is copied"
    assert flat.tolist() == list(range(100, 111))
    assert flat.data_ptr() % ALIGNED == 0
    assert receiver.keeps_tensors
    sender.send(1, buckets(200), ())
    assert flat.tolist() == list(range(100, 111))


def test_buckets_come_in_any_order_and_only_rank_0_writes(channel: WeightChannel) -> None:
    channel.sender(1, 2).send(0, buckets(900), ())
    with pytest.raises(WorkerError, match="version 0"):
        read(channel, 0)
    channel.sender(0, 2).send(0, reversed(list(buckets(7))), ())
    assert read(channel, 0) == list(range(7, 18))


def test_a_version_that_ends_with_an_error_is_none(channel: WeightChannel) -> None:
    def broken() -> Iterator[tuple[str, torch.Tensor]]:
        yield from list(buckets(1))[:2]
        raise ValueError("lost")

    channel.sender(0, 1).send(1, buckets(1), ())
    for _ in range(2):
        with pytest.raises(ValueError, match="lost"):
            channel.sender(0, 1).send(2, broken(), ())
        with pytest.raises(WorkerError, match="version 2"):
            read(channel, 2)
        assert read(channel, 1) == list(range(1, 12))
    channel.sender(0, 1).send(2, buckets(50), ())
    assert read(channel, 2) == list(range(50, 61))


def test_a_reader_of_other_weights_is_refused(channel: WeightChannel, transport: SharedBuffer | Disk) -> None:
    channel.sender(0, 1).send(0, buckets(1), ())
    other = type(channel)(channel.transport, (SLOTS[1], SLOTS[0], SLOTS[2]), channel.folder)  # type: ignore[attr-defined]
    with pytest.raises(WorkerError, match="does not hold version 0 of these weights"):
        read(other, 0)


def test_a_version_is_as_its_slots_say_whatever_dtype_a_model_is_loaded_in(channel: WeightChannel) -> None:
    """Libraries set the default dtype while they load a model of another."""
    channel.sender(0, 1).send(0, buckets(1), ())
    torch.set_default_dtype(torch.float64)
    try:
        assert {tensor.dtype for _, tensor in channel.receiver(0).read(0)} == {torch.float32}
    finally:
        torch.set_default_dtype(torch.float32)


@given(NAMES, st.data())
def test_a_version_is_a_safetensors_file(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("weights")
    dtypes = data.draw(st.lists(st.sampled_from(WeightDtype), min_size=len(names), max_size=len(names)))
    shapes = data.draw(st.lists(st.lists(st.integers(1, 3), max_size=3), min_size=len(names), max_size=len(names)))
    slots = [WeightSlot(*each) for each in zip(names, map(tuple, shapes), dtypes, strict=True)]
    values = {
        slot.name: torch.arange(slot.numel).remainder(2).view(slot.shape).to(getattr(torch, slot.dtype.value))
        for slot in slots
    }
    channel = asyncio.run(SharedBuffer(Settings(), setup(folder)).open(slots))
    assert isinstance(channel, GivesFiles)
    channel.sender(0, 1).send(3, iter(values.items()), ())
    there, given = load_file(channel.path_of(3)), dict(channel.receiver(0).read(3))
    assert there.keys() == given.keys() == values.keys()
    for name, value in values.items():
        for found in (there[name], given[name]):
            assert (found.dtype, found.shape) == (value.dtype, value.shape)
            assert found.tolist() == value.tolist() if value.element_size() > 1 else True
            assert torch.equal(found.float(), value.float())


def test_a_header_is_padded_and_says_the_version(tmp_path: Path) -> None:
    file = WeightFile(tmp_path / "w", SLOTS)
    file.make()
    file.stamp(12)
    text = file.path.read_bytes()
    length = int.from_bytes(text[:8], "little")
    assert (8 + length) % ALIGNED == 0
    assert json.loads(text[8 : 8 + length])["__metadata__"] == {"format": "pt", "version": f"{12:>20}"}
    assert len(text) == file.nbytes == 8 + length + 44


def test_no_room_for_the_weights_is_said_before_anything_is_written(tiny_disk: Path) -> None:
    large = [WeightSlot("w", (1 << 20, 64))]
    with pytest.raises(RunFolderError, match=r"cannot make room for the weights, 256\.0 MiB, in .*: No space left"):
        asyncio.run(SharedBuffer(Settings(), setup(tiny_disk)).open(large))


def test_a_folder_elsewhere_is_the_runs_own_and_goes_with_it(tmp_path: Path) -> None:
    elsewhere, scratches = tmp_path / "nfs", [tmp_path / "one", tmp_path / "two"]
    runs = [Disk(DiskSettings(folder=elsewhere), setup(scratch)) for scratch in scratches]
    channels = [asyncio.run(run.open(SLOTS)) for run in runs]
    for number, channel in enumerate(channels):
        channel.sender(0, 1).send(0, buckets(100 * number), ())
    assert [read(channel, 0)[0] for channel in channels] == [0, 100]
    again = asyncio.run(Disk(DiskSettings(folder=elsewhere), setup(scratches[0])).open(SLOTS))
    assert again.folder == channels[0].folder
    assert list(again.folder.iterdir()) == []
    for run in runs:
        asyncio.run(run.close())
    assert list(elsewhere.iterdir()) == []


# Portable model directories: transformers 4 and 5 find the same in them, and everybody may read all files.

Config = dict[str, Json]
STRETCHED: Config = {"rope_type": "yarn", "factor": 4.0}
GEMMA: Config = {
    "full_attention": {"rope_theta": 9.0, "rope_type": "linear", "factor": 8.0},
    "sliding_attention": {"rope_theta": 5.0, "rope_type": "default"},
}
CASES: list[tuple[Config, Config]] = [
    ({"rope_parameters": {"rope_theta": 9.0, "rope_type": "default"}}, {"rope_theta": 9.0}),
    (
        {"rope_parameters": {"rope_theta": 9.0, "partial_rotary_factor": 0.5, **STRETCHED}},
        {"rope_theta": 9.0, "partial_rotary_factor": 0.5, "rope_scaling": {"partial_rotary_factor": 0.5, **STRETCHED}},
    ),
    ({"rope_theta": 9.0}, {"rope_parameters": {"rope_theta": 9.0, "rope_type": "default"}}),
    (
        {"rope_theta": 9.0, "rope_scaling": {"type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_theta": 9.0, **STRETCHED}},
    ),
    (
        {"rope_parameters": GEMMA},
        {"rope_theta": 9.0, "rope_local_base_freq": 5.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
    ),
    ({"num_local_experts": 4}, {"num_experts": 4}),
    ({"model_type": "gpt2", "n_embd": 8}, {}),
]
"""What was saved, and what is added."""


def test_positions_and_experts_stand_where_either_reads_them() -> None:
    wrong = [(given, found) for given, added in CASES if (found := readable_by_both(given)) != given | added]
    assert wrong == []
    nested = {"text_config": CASES[0][0]}
    assert readable_by_both(nested) == {"text_config": CASES[0][0] | CASES[0][1]}
    assert all(readable_by_both(readable_by_both(given)) == readable_by_both(given) for given, _ in CASES)


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_tokenizer_has_a_class_that_both_have_and_files_one_mode(tmp_path: Path, umask: int) -> None:
    about = {"tokenizer_class": "TokenizersBackend", "extra_special_tokens": ["<a>"], "pad_token": "é"}
    before = os.umask(umask)
    try:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(about))
        (tmp_path / "config.json").write_text(json.dumps(CASES[0][0]))
        (tmp_path / "model.safetensors").write_bytes(b"")
        (tmp_path / "model.safetensors").chmod(0o600)
        make_portable(tmp_path)
    finally:
        os.umask(before)
    assert json.loads((tmp_path / "tokenizer_config.json").read_text("utf-8")) == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "additional_special_tokens": ["<a>"],
        "pad_token": "é",
    }
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(["config.json", "model.safetensors", "tokenizer_config.json"], 0o666 & ~umask)
