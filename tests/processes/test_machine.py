"""What a machine has and what is taken of it; cores are shared, GPUs are not."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.errors import ConfigError
from slime_core.processes.launcher import GroupResources, Machine
from slime_core.roles import Needs
from tests.tables import table

GIB = 1 << 30


def machine() -> Machine:
    return Machine(2, ["0", "1"])


def refusal(machine: Machine, needs: Needs, taken: Sequence[GroupResources] = ()) -> str:
    with pytest.raises(ConfigError) as raised:
        machine.share("trainer", needs, 1, taken)
    return str(raised.value)


def take(machine: Machine, needs: Needs, workers: int, taken: Sequence[GroupResources] = ()) -> GroupResources:
    return GroupResources("engine", needs, machine.share("engine", needs, workers, taken))


def test_a_refusal_says_what_was_asked_and_what_there_is() -> None:
    said = refusal(machine(), Needs(cpus=4, gpus=1.0))
    assert said.startswith("group 'trainer' needs 4 cores, 1 GPU. This machine has 2 cores, GPUs 0, 1")
    assert "a worker cannot have more cores than there are" in said
    assert "1 core, no GPU: not so many GPUs are free" in refusal(Machine(1, []), Needs(gpus=1.0))


def test_parts_of_a_gpu_are_shared_and_whole_ones_are_not() -> None:
    engine = take(machine(), Needs(gpus=0.5), 3)
    assert engine.devices == [("0",), ("0",), ("1",)]
    assert "not so many GPUs are free" in refusal(machine(), Needs(gpus=1.0), [engine])
    assert take(machine(), Needs(gpus=0.5), 1, [engine]).devices == [("1",)]


@given(st.lists(st.tuples(st.sampled_from([0.25, 0.5, 1.0, 2.0]), st.integers(1, 3)), max_size=6))
def test_no_gpu_is_given_out_twice(asked: list[tuple[float, int]]) -> None:
    taken = list[GroupResources]()
    for gpus, workers in asked:
        try:
            taken.append(take(machine(), Needs(gpus=gpus), workers, taken))
        except ConfigError:
            continue
        for name in ("0", "1"):
            assert sum(min(each.needs.gpus, 1.0) * own.count(name) for each in taken for own in each.devices) <= 1.0


@table("wrong", [{"cpus": -1.0}, {"gpus": 1.5}, {"memory": -1}, {"custom": {"disk": float("nan")}}])
def test_needs_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Needs(**wrong)  # type: ignore[arg-type]
