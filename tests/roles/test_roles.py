"""Specs and the weight transport: what is checked when a plugin offers something."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_core.config.fit import agree_transport
from slime_core.errors import ConfigError, PluginError
from slime_core.roles import (
    ANY_RECEIVER,
    EngineSpec,
    GenerateChunk,
    GenerateOutput,
    RewardSpec,
    Settings,
    TrainerSpec,
    TransportSpec,
    WeightChannel,
    WeightDtype,
    WeightSlot,
)
from tests.tables import table


def factory(settings: object, setup: object) -> object:
    return object()


@table(
    "name, settings, why",
    [
        *((name, Settings, "use letters, digits") for name in ("", "two words", "a/b", "a.b")),
        ("x", dict, r"subclass of slime_core\.Settings"),
    ],
)
def test_a_spec_that_no_run_could_select_is_refused(name: str, settings: type[Settings], why: str) -> None:
    with pytest.raises((TypeError, ValueError), match=why):
        RewardSpec(name, factory, settings)  # type: ignore[arg-type]


def test_settings_forbid_unknown_keys_and_are_frozen() -> None:
    class Own(Settings):
        width: int = 1

    with pytest.raises(ValueError, match="Extra inputs"):
        Own.model_validate({"wdith": 2})
    with pytest.raises(ValueError, match="frozen"):
        Own().width = 2  # type: ignore[misc]


def transports(*specs: TransportSpec) -> dict[str, TransportSpec]:
    return {f"plugin-of-{spec.name}/{spec.name}": spec for spec in specs}


SHM, TCP = TransportSpec("shm", factory), TransportSpec("tcp", factory, rendezvous=True)  # type: ignore[arg-type]
IPC = TransportSpec("ipc", factory, brings_receiver=False)  # type: ignore[arg-type]
OFFERED = transports(SHM, TCP, IPC)


def pair(sends: Sequence[str] | None, receives: Sequence[str]) -> tuple[TrainerSpec, EngineSpec]:
    own = None if sends is None else tuple(sends)
    return TrainerSpec("a", factory, transports=own), EngineSpec("b", factory, transports=tuple(receives))  # type: ignore[arg-type]


@table(
    "sends, receives, forced, agreed",
    [
        (None, ("tcp", "shm"), None, "plugin-of-tcp/tcp"),
        (("shm",), ("tcp", "shm"), None, "plugin-of-shm/shm"),
        (("plugin-of-shm/shm",), ("tcp", "shm"), None, "plugin-of-shm/shm"),
        (None, ("nccl", "shm"), None, "plugin-of-shm/shm"),
        (None, ("nccl", ANY_RECEIVER), None, "plugin-of-shm/shm"),
        (("tcp", "ipc"), (ANY_RECEIVER,), None, "plugin-of-tcp/tcp"),
        (None, ("shm", ANY_RECEIVER), "plugin-of-tcp/tcp", "plugin-of-tcp/tcp"),
        (None, ("shm", "ipc"), "plugin-of-ipc/ipc", "plugin-of-ipc/ipc"),
    ],
)
def test_a_pair_travels_by_the_engines_favourite_that_both_have(
    sends: Sequence[str] | None, receives: Sequence[str], forced: str | None, agreed: str
) -> None:
    assert agree_transport(*pair(sends, receives), OFFERED, forced) == agreed


@table(
    "sends, receives, forced, says",
    [
        (
            None,
            (),
            None,
            r"trainer 'a' cannot send weights to engine 'b': they have no .* supports any, the engine none",
        ),
        (("tcp",), ("shm",), None, r"they have no transport in common. The trainer supports tcp, the engine shm"),
        (("ipc",), (ANY_RECEIVER,), None, r"supports ipc, the engine any that brings a receiver"),
        (None, ("nccl",), None, r"Available are plugin-of-shm/shm, plugin-of-tcp/tcp, plugin-of-ipc/ipc"),
        (None, ("shm",), "plugin-of-tcp/tcp", r"support transport 'plugin-of-tcp/tcp'.* use = 'plugin-of-shm/shm'"),
    ],
)
def test_a_pair_without_a_common_transport_is_refused(
    sends: Sequence[str] | None, receives: Sequence[str], forced: str | None, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        agree_transport(*pair(sends, receives), OFFERED, forced)


@given(st.sampled_from(WeightDtype), st.lists(st.integers(0, 5), max_size=3))
def test_a_slot_is_as_large_as_the_tensor_that_it_is_for(dtype: WeightDtype, shape: list[int]) -> None:
    tensor = torch.empty(shape, dtype=getattr(torch, dtype.value))
    slot = WeightSlot("w", tuple(shape), dtype)
    assert (slot.numel, slot.nbytes) == (tensor.numel(), tensor.numel() * tensor.element_size())
    assert dtype.is_float == (tensor.is_floating_point() and tensor.element_size() > 1)


def test_a_channel_whose_transport_has_no_ends_says_so() -> None:
    channel = WeightChannel("mine", (WeightSlot("w", (2, 3)),))
    with pytest.raises(PluginError, match=r"^transport 'mine' has no sender"):
        channel.sender(0, 1)
    with pytest.raises(PluginError, match=r"^transport 'mine' brings no receiver: choose an engine that"):
        channel.receiver(0)


@table("chunks", [[], [GenerateChunk([5], [-0.5], 3)]])
def test_parts_without_an_end_are_no_response(chunks: list[GenerateChunk]) -> None:
    with pytest.raises(ValueError, match="chunks without an end"):
        GenerateOutput.joined(chunks)
