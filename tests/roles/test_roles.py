"""Specs and the weight transport: what is checked when a plugin offers something."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from slime_core.errors import ConfigError, PluginError
from slime_core.roles import (
    ANY_RECEIVER,
    SPECS,
    GenerateChunk,
    GenerateOutput,
    RewardSpec,
    Settings,
    TransportSpec,
    WeightChannel,
    WeightDtype,
    WeightSlot,
    agree_transport,
)
from tests.tables import table


def factory(settings: object, setup: object) -> object:
    return object()


@table("name", ["", "two words", "a/b", "a.b"])
def test_a_name_that_could_not_be_selected_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="use letters, digits"):
        RewardSpec(name, factory)  # type: ignore[arg-type]


def test_settings_must_be_a_settings_model() -> None:
    with pytest.raises(TypeError, match=r"subclass of slime_core\.Settings"):
        RewardSpec("x", factory, dict)  # type: ignore[arg-type]


def test_settings_forbid_unknown_keys_and_are_frozen() -> None:
    class Own(Settings):
        width: int = 1

    with pytest.raises(ValueError, match="Extra inputs"):
        Own.model_validate({"wdith": 2})
    with pytest.raises(ValueError, match="frozen"):
        Own().width = 2  # type: ignore[misc]


def test_every_role_knows_its_name() -> None:
    assert all(spec.role == role for role, spec in SPECS.items())
    assert {role for role, spec in SPECS.items() if spec.many} == {
        "reward",
        "group_reward",
        "sample_filter",
        "reward_shaper",
        "batch_transform",
        "tracker",
        "check",
    }


def transports(*specs: TransportSpec) -> dict[str, TransportSpec]:
    return {f"plugin-of-{spec.name}/{spec.name}": spec for spec in specs}


SHM, TCP = TransportSpec("shm", factory), TransportSpec("tcp", factory, rendezvous=True)  # type: ignore[arg-type]
IPC = TransportSpec("ipc", factory, brings_receiver=False)  # type: ignore[arg-type]
OFFERED = transports(SHM, TCP, IPC)


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
    assert agree_transport("a", sends, "b", receives, OFFERED, forced) == agreed


@table(
    "sends, receives, forced, says",
    [
        (
            None,
            (),
            None,
            r"from trainer 'a' \(sends by any\) to engine 'b' \(takes none\): they have no .* matching pair",
        ),
        (("tcp",), ("shm",), None, r"sends by tcp\) .* \(takes shm\): they have no transport in common"),
        (("ipc",), (ANY_RECEIVER,), None, r"takes any that brings a receiver\): they have no transport in common"),
        (None, ("nccl",), None, r"There are plugin-of-shm/shm, plugin-of-tcp/tcp, plugin-of-ipc/ipc"),
        (
            None,
            ("shm",),
            "plugin-of-tcp/tcp",
            r"'plugin-of-tcp/tcp' is not what both .* use = 'plugin-of-shm/shm' would",
        ),
    ],
)
def test_a_pair_without_a_common_transport_is_refused(
    sends: Sequence[str] | None, receives: Sequence[str], forced: str | None, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        agree_transport("a", sends, "b", receives, OFFERED, forced)


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
