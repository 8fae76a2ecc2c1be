"""Specs and the weight transport: what is checked when a plugin offers something."""

from pathlib import Path

import pytest

from slime_core.errors import ConfigError
from slime_core.roles import (
    SPECS,
    FinishReason,
    GenerateChunk,
    GenerateOutput,
    RewardSpec,
    Settings,
    Transport,
    WeightChannel,
    WeightSlot,
    agree_transport,
)


def factory(settings: object, setup: object) -> object:
    return object()


@pytest.mark.parametrize("name", ["", "two words", "a/b", "a.b"])
def test_a_name_that_could_not_be_selected_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="use letters, digits"):
        RewardSpec(name, factory)  # type: ignore[arg-type]


def test_settings_must_be_a_settings_model() -> None:
    with pytest.raises(TypeError, match=r"subclass of slime_core\.Settings"):
        RewardSpec("x", factory, dict)  # type: ignore[arg-type]


def test_a_factory_must_be_callable() -> None:
    with pytest.raises(TypeError, match=r"factory\(settings, setup\)"):
        RewardSpec("x", None)  # type: ignore[arg-type]


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


def test_a_pair_without_a_common_transport_is_refused() -> None:
    assert agree_transport("a", [Transport.SHARED_BUFFER], "b", [Transport.SHARED_BUFFER]) is Transport.SHARED_BUFFER
    with pytest.raises(ConfigError, match="trainer 'a' sends weights by shared-buffer; engine 'b' takes none"):
        agree_transport("a", [Transport.SHARED_BUFFER], "b", [])


def test_a_channel_counts_its_elements() -> None:
    slots = [WeightSlot("w", (2, 3), 0), WeightSlot("b", (), 6)]
    assert WeightChannel(Transport.SHARED_BUFFER, Path("x"), slots).numel == 7


def test_the_parts_of_a_response_are_joined_in_their_order() -> None:
    first, second = GenerateChunk([5, 6], [-0.5, -0.25], 3), GenerateChunk([7], [-1.0], 3)
    last = GenerateChunk([], [], 4, FinishReason.STOP, "END")
    expected = GenerateOutput([5, 6, 7], [-0.5, -0.25, -1.0], FinishReason.STOP, 4, "END")
    assert GenerateOutput.joined([first, second, last]) == expected


@pytest.mark.parametrize("chunks", [[], [GenerateChunk([5], [-0.5], 3)]])
def test_parts_without_an_end_are_no_response(chunks: list[GenerateChunk]) -> None:
    with pytest.raises(ValueError, match="chunks without an end"):
        GenerateOutput.joined(chunks)
