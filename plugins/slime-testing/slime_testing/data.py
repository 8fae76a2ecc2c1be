"""The contracts of data sources (SRC-001 to SRC-009) and buffers (BUF-001 to BUF-009).

    class TestMixture(DataSourceContract):
        choice = "slime-data-mixture/mixture"
        rows = [{"input": "2+2=", "label": "4"}, {"input": "3+4=", "label": "7"}]

A source that reads `prompt_data` receives `rows` as a JSON Lines file.
"""

import asyncio
import atexit
import functools
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from unittest import SkipTest

from slime_core.catalog.checks import check_draw, check_drawn, check_evicted
from slime_core.roles import (
    Buffer,
    BufferContext,
    BufferSetup,
    BufferSpec,
    DataSource,
    DataSourceSetup,
    DataSourceSpec,
    PromptFile,
    Selection,
)
from slime_core.sample import Group, GroupId
from slime_testing._state import plain_state
from slime_testing.contract import check, require
from slime_testing.engine import CharTokenizer
from slime_testing.role import SEED, RoleContract, require_methods
from slime_testing.samples import make_group

SAMPLES = 3
"""Samples per group in the kit's setup."""
ROUNDS = 6
"""Number of draws in a check; with three groups each, they exceed one epoch of a small source."""


class DataSourceContract(RoleContract[DataSourceSpec]):
    """Contract of data sources: inherit it, and set `choice` and rows that the source can read."""

    kind = DataSourceSpec
    rows: ClassVar[Sequence[Mapping[str, object]]] = [{"input": f"{n} + 1 =", "label": str(n + 1)} for n in range(5)]
    """Rows of the prompt file, with the columns `input` and `label`."""

    @check("SRC-001")
    def test_the_factory_builds_a_data_source(self) -> None:
        """The object has every method of `slime_core.roles.DataSource`, and at least one prompt per epoch."""
        require_methods(self._build(), _SOURCE_METHODS)
        require(len(self._build()) > 0, "len() of the source is 0; expected at least one prompt per epoch")

    @check("SRC-002", needs=("SRC-001", "SRC-009"))
    def test_draw_returns_the_requested_number_of_groups(self) -> None:
        """A source never ends. After the last row, begin a new epoch, even within one draw."""
        source = self._build()
        for count in (1, 0, 2 * len(source) + 1):
            groups = _draw(source, count)
            require(len(groups) == count, f"draw({count}) returned {len(groups)} groups")

    @check("SRC-003", needs=("SRC-001", "SRC-002", "SRC-009"))
    def test_groups_contain_pending_samples(self) -> None:
        """Each group has `n_samples_per_prompt` samples, each PENDING, with a prompt and its index in the group."""
        for group in check_drawn(_draw(self._build(), 4), plugin=self.registered.plugin, count=4):
            count = len(group.samples)
            require(count == SAMPLES, f"a group has {count} samples; expected n_samples_per_prompt = {SAMPLES}")
            for index, sample in enumerate(group.samples):
                require(sample.prompt, "a drawn sample has no prompt")
                require(sample.index == index, f"sample {index} of a group has index {sample.index}; expected {index}")
            numbers = {sample.group_index for sample in group.samples}
            require(len(numbers) == 1, f"samples of one group have group_index {numbers}; expected one value")

    @check("SRC-004", needs=("SRC-001", "SRC-009"))
    def test_every_group_has_a_unique_id(self) -> None:
        """Seeds and the ledger use `group.id`, and metrics use `group_index`. Never use a value of either one twice."""
        groups = _draw(self._build(), 3 * len(self._build()))
        require(len({group.id for group in groups}) == len(groups), "two groups have the same id")
        numbers = {group.samples[0].group_index for group in groups}
        require(len(numbers) == len(groups), "two groups have the same group_index")

    @check("SRC-005", needs=("SRC-001", "SRC-007", "SRC-009"))
    def test_a_resumed_source_draws_the_same_groups(self) -> None:
        """A resumed run must not repeat or skip rows. `state_dict` returns plain JSON with all that this needs.

        Save the position, the epoch, the order of rows, and groups that `add` returned to the source.
        """
        for cut in range(ROUNDS):
            source = self._build()
            _run_rounds(source, cut)
            saved = plain_state(source.state_dict())
            resumed = self._build()
            resumed.load_state_dict(json.loads(saved))
            expected, found = (_run_rounds(each, ROUNDS) for each in (source, resumed))
            if found != expected:
                where = f"saved after {cut} draws, a resumed source draws other groups"
                raise AssertionError(f"{where}: {_difference(expected, found, requeued=cut > 0)}")

    @check("SRC-006", needs=("SRC-001", "SRC-009"))
    def test_returned_groups_are_drawn_first(self) -> None:
        """Draw groups that `add` returned to the source before any new group, unchanged and in order."""
        source = self._build()
        returned = _draw(source, 2)
        source.add(returned)
        again = [group.id for group in _draw(source, 3)[:2]]
        ids = [group.id for group in returned]
        require(again == ids, f"after add() of groups {ids}, the next draw begins with {again}")

    @check("SRC-007", needs=("SRC-001", "SRC-009"))
    def test_the_seed_determines_the_order(self) -> None:
        """Two sources with one seed draw the same groups. Shuffle with `random.Random(setup.seed)`, not `random`."""
        one, other = (_run_rounds(self._build(), ROUNDS) for _ in range(2))
        require(one == other, "two sources with the same seed drew different groups")

    @check("SRC-008", needs=("SRC-001", "SRC-009"))
    def test_an_epoch_contains_every_row_once(self) -> None:
        """Draw each row once per epoch: a row that is drawn more often gets more weight in training."""
        if not self.spec.reads_prompt_data:
            raise SkipTest("the source generates its own prompts")
        source = self._build()
        for epoch in range(2):
            rows = sorted(group.id.row for group in _draw(source, len(source)))
            require(rows == sorted(set(rows)), f"epoch {epoch} contains rows {rows}; expected each row once")

    @check("SRC-009", needs=("SRC-001",))
    def test_two_sources_share_no_state(self) -> None:
        """Training and evaluation use separate sources. Store position, order and returned groups in `self`."""
        one, other = self._build(), self._build()
        before = _state_text(one.state_dict())
        _run_rounds(other, ROUNDS)
        require(_state_text(one.state_dict()) == before, "drawing from one source changed the state of another one")

    def _build(self) -> DataSource:
        setup = DataSourceSetup(
            self.make,
            SEED,
            prompts=[self._prompts()] if self.spec.reads_prompt_data else (),
            tokenizer=CharTokenizer(),
            n_samples_per_prompt=SAMPLES,
            shuffle=True,
        )
        return self.spec.factory(self.make_settings(), setup)

    def _prompts(self) -> PromptFile:
        path = _scratch() / f"{type(self).__qualname__}.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in self.rows), encoding="utf-8")
        return PromptFile(path, name="rows", input_key="input", label_key="label")


_SOURCE_METHODS = ("draw", "add", "state_dict", "load_state_dict", "__len__")


@functools.cache
def _scratch() -> Path:
    # TemporaryDirectory does not work here: since Python 3.13, forks of multiprocessing finalize it.
    folder = tempfile.mkdtemp(prefix="slime-kit-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _state_text(state: object) -> str:
    try:
        return json.dumps(state, sort_keys=True, default=repr)
    except TypeError:
        return repr(state)


def _difference(expected: Sequence[str], found: Sequence[str], *, requeued: bool) -> str:
    first = next(number for number, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1])
    if requeued and first == 0:
        return "state_dict lacks the groups returned by `add`, which must be drawn first; save them"
    ids = [[GroupId.parse(json.loads(each)["id"]) for each in drawn] for drawn in (expected, found)]
    if all((one.epoch, one.draw) == (other.epoch, other.draw) for one, other in zip(*ids, strict=True)):
        return (
            "the position is correct, but the rows have another order; save the order, or the seed that determines it"
        )
    return f"draw {first + 1} is the first that differs; save the position in the data and the number of the epoch"


def _draw(source: DataSource, count: int) -> list[Group]:
    return asyncio.run(source.draw(count))


def _run_rounds(source: DataSource, rounds: int) -> list[str]:
    drawn = []
    for _ in range(rounds):
        groups = _draw(source, 3)
        drawn += [json.dumps(group.to_dict(), sort_keys=True) for group in groups]
        source.add(groups[2:])
    return drawn


class BufferContract(RoleContract[BufferSpec]):
    """Contract of buffers: inherit it and set `choice`."""

    kind = BufferSpec

    @check("BUF-001")
    def test_the_factory_builds_a_buffer(self) -> None:
        """The object has every method of `slime_core.roles.Buffer` and `__len__`, and is empty at first."""
        require_methods(self._build(), _BUFFER_METHODS)
        require(len(self._build()) == 0, f"a new buffer holds {len(self._build())} groups; expected 0")

    @check("BUF-002", needs=("BUF-001",))
    def test_sample_returns_added_groups_up_to_the_limit(self) -> None:
        """`sample(want)` returns at most `want` distinct groups that were added, each with an importance weight.

        Without priorities the weight is 1.0.
        """
        buffer, added = self._build(), set[GroupId]()
        for round_, groups in _rounds():
            buffer.add(groups)
            added |= {group.id for group in groups}
            drawn: object = buffer.sample(3, _context(round_))
            check_draw(drawn, plugin=self.registered.plugin, want=3, is_held=added.__contains__)

    @check("BUF-004", needs=("BUF-001", "BUF-005", "BUF-008"))
    def test_a_group_is_returned_at_most_max_uses_times(self) -> None:
        """Return a group as often as `BufferSpec.replay` allows, by default once. More would be off-policy training."""
        allowed = self.spec.replay(self.make_settings()).max_uses
        buffer, uses = self._build(), Counter[GroupId]()
        for round_ in range(ROUNDS * (1 + allowed)):
            if round_ < ROUNDS:
                buffer.add(_groups(round_))
            ids = [group.id for group in buffer.sample(3, _context(round_)).groups]
            buffer.update(dict.fromkeys(ids, 1.0))
            uses.update(ids)
        again = [str(group_id) for group_id, count in uses.items() if count > allowed]
        require(not again, f"returned more than {_times(allowed)}, which max_uses forbids: {', '.join(again)}")

    @check("BUF-005", needs=("BUF-001", "BUF-008"))
    def test_an_empty_draw_is_not_an_error(self) -> None:
        """If the buffer is empty or `want` is 0, return a draw without groups, and raise no error."""
        buffer = self._build()
        require(not buffer.sample(4, _context(0)).groups, "sample(4) of an empty buffer returned groups")
        buffer.add(_groups(0))
        require(not buffer.sample(0, _context(0)).groups, "sample(0) returned groups")

    @check("BUF-006", needs=("BUF-001", "BUF-007"))
    def test_a_resumed_buffer_returns_the_same_groups(self) -> None:
        """A crash must not lose groups. `state_dict` returns plain JSON with every group, priority and random state."""
        for cut in range(ROUNDS):
            buffer = self._build()
            self._run_rounds(buffer, range(cut))
            saved = plain_state(buffer.state_dict())
            resumed = self._build()
            resumed.load_state_dict(json.loads(saved))
            require(len(resumed) == len(buffer), f"it held {len(buffer)} groups, and {len(resumed)} after a resume")
            expected, found = (self._run_rounds(each, range(cut, ROUNDS)) for each in (buffer, resumed))
            require(found == expected, f"saved after {cut} rounds, a resumed buffer returns other groups")

    @check("BUF-007", needs=("BUF-001",))
    def test_evicted_groups_are_reported_once_and_never_returned(self) -> None:
        """`evict` reports each group that the buffer removes, once, with a reason. The ledger closes it then."""
        buffer, held, gone = self._build(), set[GroupId](), set[GroupId]()
        for round_, groups in _rounds():
            buffer.add(groups)
            held |= {group.id for group in groups}
            evicted: object = buffer.evict(_context(round_))
            now = set(check_evicted(evicted, plugin=self.registered.plugin, is_held=held.__contains__))
            held, gone = held - now, gone | now
            came = {group.id for group in buffer.sample(2, _context(round_)).groups} & gone
            require(not came, f"sample() returned groups that evict() had reported: {', '.join(map(str, came))}")

    @check("BUF-008", needs=("BUF-001",))
    def test_two_buffers_share_no_state(self) -> None:
        """A process may use several buffers. Store all state in `self`."""
        one, other = self._build(), self._build()
        one.add(_groups(0))
        require(len(other) == 0, "a group that was added to one buffer is in another one")

    @check("BUF-009", needs=("BUF-001",))
    def test_groups_are_returned_unchanged(self) -> None:
        """Do not change samples: a buffer may write only to `group.metadata`."""
        buffer, samples = self._build(), dict[GroupId, object]()
        for round_, groups in _rounds():
            samples |= {group.id: [sample.to_dict() for sample in group.samples] for group in groups}
            buffer.add(groups)
            for group in buffer.sample(3, _context(round_)).groups:
                same = [sample.to_dict() for sample in group.samples] == samples[group.id]
                require(same, f"the buffer changed samples of group {group.id}")

    def _build(self) -> Buffer:
        return self.spec.factory(self.make_settings(), BufferSetup(self.make, SEED, buffer_filter=_OldestFirst()))

    def _run_rounds(self, buffer: Buffer, rounds: range) -> list[tuple[list[GroupId], list[float], list[GroupId]]]:
        history = []
        for round_ in rounds:
            buffer.add(_groups(round_))
            evicted = buffer.evict(_context(round_))
            draw = buffer.sample(2, _context(round_))
            ids = [group.id for group in draw.groups]
            buffer.update({group_id: 1.0 / (1 + group_id.draw) for group_id in ids})
            history.append((ids, list(draw.weights), sorted(evicted)))
        return history


class _OldestFirst:
    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        return Selection(take=range(min(want, len(groups))))


_BUFFER_METHODS = ("add", "sample", "update", "evict", "state_dict", "load_state_dict", "__len__")


def _groups(round_: int) -> list[Group]:
    return [make_group(4 * round_ + number, rewards=(number % 2, 1.0), weight_version=round_) for number in range(4)]


def _rounds() -> list[tuple[int, list[Group]]]:
    return [(round_, _groups(round_)) for round_ in range(ROUNDS)]


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _context(round_: int) -> BufferContext:
    return BufferContext(rollout_id=round_, weight_version=round_)
