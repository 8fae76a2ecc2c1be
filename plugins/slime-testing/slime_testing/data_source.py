"""DataSourceContract: what every data source must keep, SRC-001 to SRC-009.

    class TestMixture(DataSourceContract):
        choice = "slime-data-mixture/mixture"
        rows = [{"input": "2+2=", "label": "4"}, {"input": "3+4=", "label": "7"}]

A source that reads `prompt_data` is given `rows` as a JSON Lines file.
"""

import asyncio
import atexit
import functools
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar
from unittest import SkipTest

from slime_core.roles import DataSource, DataSourceSetup, DataSourceSpec, PromptFile
from slime_core.sample import Group, GroupId, Status
from slime_testing._state import plain_state
from slime_testing.contract import check, require
from slime_testing.engine import CharTokenizer
from slime_testing.protected import SEED
from slime_testing.role import RoleContract

SAMPLES = 3
"""Samples in each group that the kit asks for."""
ROUNDS = 5
"""Draws that a check plays; with three groups each they cross the epochs of a small source."""


class DataSourceContract(RoleContract[DataSourceSpec]):
    """Inherit, name the data source, and give it rows it can read."""

    kind = DataSourceSpec
    choice: ClassVar[str | DataSourceSpec]
    """The data source: a name for the catalog, or a spec."""
    rows: ClassVar[Sequence[Mapping[str, object]]] = [{"input": f"{n} + 1 =", "label": str(n + 1)} for n in range(5)]
    """Rows of the prompt file, with the columns `input` and `label`."""

    @check("SRC-001")
    def test_the_factory_builds_a_data_source(self) -> None:
        """The object has every method of `slime_core.roles.DataSource`, and at least one prompt in an epoch."""
        built: object = self._build()
        missing = [name for name in _METHODS if not callable(getattr(built, name, None))]
        require(not missing, f"{type(built).__name__} lacks {', '.join(missing)}")
        require(len(self._build()) > 0, "an epoch has no prompts")

    @check("SRC-002", needs=("SRC-001", "SRC-009"))
    def test_a_draw_is_exactly_as_many_groups_as_wanted(self) -> None:
        """A source never ends: after the last row another epoch begins, within one draw if need be."""
        source = self._build()
        for count in (1, 0, 2 * len(source) + 1):
            groups = _draw(source, count)
            require(len(groups) == count, f"{count} groups were wanted, {len(groups)} came")

    @check("SRC-003", needs=("SRC-001", "SRC-009"))
    def test_groups_hold_pending_samples_ready_to_generate(self) -> None:
        """Each group has `n_samples_per_prompt` samples with status PENDING, a prompt, and their place in the group."""
        for group in _draw(self._build(), 4):
            require(len(group.samples) == SAMPLES, f"a group of {len(group.samples)} samples; {SAMPLES} were wanted")
            for index, sample in enumerate(group.samples):
                require(sample.status is Status.PENDING, f"a drawn sample has status {sample.status}")
                require(sample.prompt, "a drawn sample has no prompt")
                require(sample.index == index, f"sample {index} of a group says index {sample.index}")
            numbers = {sample.group_index for sample in group.samples}
            require(len(numbers) == 1 and None not in numbers, f"group_index within a group: {numbers}")

    @check("SRC-004", needs=("SRC-001", "SRC-009"))
    def test_every_group_has_an_identity_of_its_own(self) -> None:
        """Seeds and ledger go by `group.id`, metrics by `group_index`; neither may ever come again."""
        groups = _draw(self._build(), 3 * len(self._build()))
        require(len({group.id for group in groups}) == len(groups), "two groups have the same id")
        numbers = {group.samples[0].group_index for group in groups}
        require(len(numbers) == len(groups), "two groups have the same group_index")

    @check("SRC-005", needs=("SRC-001", "SRC-007", "SRC-009"))
    def test_a_saved_source_continues_as_if_nothing_had_happened(self) -> None:
        """`state_dict` is plain JSON with position, order and requeued groups; a resume repeats and skips no row."""
        for cut in range(ROUNDS):
            source = self._build()
            _play(source, cut)
            saved = plain_state(source.state_dict())
            resumed = self._build()
            resumed.load_state_dict(json.loads(saved))
            expected, found = (_play(each, ROUNDS) for each in (source, resumed))
            if found != expected:
                told = f"saved after {cut} draws: what is drawn next differs after a resume"
                raise AssertionError(f"{told}; {_difference(expected, found, requeued=cut > 0)}")

    @check("SRC-006", needs=("SRC-001", "SRC-009"))
    def test_returned_groups_come_first(self) -> None:
        """What was interrupted is drawn again before anything new, whole and in order."""
        source = self._build()
        returned = _draw(source, 2)
        source.add(returned)
        again = [group.id for group in _draw(source, 3)[:2]]
        require(again == [group.id for group in returned], f"2 groups were returned; the next draw begins with {again}")

    @check("SRC-007", needs=("SRC-001", "SRC-009"))
    def test_the_seed_decides_the_order(self) -> None:
        """Two sources of one seed draw alike, in any process: shuffle with `setup.seed`, never with `random` alone."""
        one, other = (_play(self._build(), ROUNDS) for _ in range(2))
        require(one == other, "two sources of the same seed draw differently")

    @check("SRC-008", needs=("SRC-001", "SRC-009"))
    def test_an_epoch_holds_every_row_once(self) -> None:
        """Rows drawn more often than others weigh more in the training than the data says."""
        if not self.spec.reads_prompt_data:
            raise SkipTest("the source makes its own prompts")
        source = self._build()
        for epoch in range(2):
            rows = sorted(group.id.row for group in _draw(source, len(source)))
            require(rows == sorted(set(rows)), f"epoch {epoch} holds rows {rows}")

    @check("SRC-009", needs=("SRC-001",))
    def test_two_sources_share_nothing(self) -> None:
        """Training and evaluation have sources of their own: keep the place, the order and what came back in `self`."""
        one, other = self._build(), self._build()
        before = _shown(one.state_dict())
        _play(other, ROUNDS)
        require(_shown(one.state_dict()) == before, "drawing from one source moved another one")

    def _build(self) -> DataSource:
        setup = DataSourceSetup(
            self.make,
            SEED,
            prompts=[self._prompts()] if self.spec.reads_prompt_data else (),
            tokenizer=CharTokenizer(),
            n_samples_per_prompt=SAMPLES,
            shuffle=True,
        )
        return self.spec.factory(self.validated(), setup)

    def _prompts(self) -> PromptFile:
        path = _scratch() / f"{type(self).__qualname__}.jsonl"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in self.rows), encoding="utf-8")
        return PromptFile(path, name="rows", input_key="input", label_key="label")


_METHODS = ("draw", "add", "state_dict", "load_state_dict", "__len__")


@functools.cache
def _scratch() -> Path:
    """A folder for prompt files, until the process ends."""
    # No TemporaryDirectory: multiprocessing's forks let go of what is registered here, from Python 3.13 on, and such an
    # object would take the folder with it.
    folder = tempfile.mkdtemp(prefix="slime-kit-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _shown(state: object) -> str:
    """A state as text, whether or not it is plain JSON: another check looks at that."""
    try:
        return json.dumps(state, sort_keys=True, default=repr)
    except TypeError:
        return repr(state)


def _difference(expected: Sequence[str], found: Sequence[str], *, requeued: bool) -> str:
    """Says what was probably not saved, judged by how the draws after a resume differ."""
    first = next(number for number, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1])
    if requeued and first == 0:
        return "a group that was returned by `add` comes first without a resume, and not after one: save what came back"
    ids = [[GroupId.parse(json.loads(each)["id"]) for each in drawn] for drawn in (expected, found)]
    if all((one.epoch, one.draw) == (other.epoch, other.draw) for one, other in zip(*ids, strict=True)):
        return "its place is the same, and its rows come in another order: save the order, or what it is drawn from"
    return f"draw {first + 1} is the first to differ: save the place in the data and the number of the epoch"


def _draw(source: DataSource, count: int) -> list[Group]:
    return asyncio.run(source.draw(count))


def _play(source: DataSource, rounds: int) -> list[str]:
    """What a source draws in some rounds, of which every third group is returned."""
    drawn = []
    for _ in range(rounds):
        groups = _draw(source, 3)
        drawn += [json.dumps(group.to_dict(), sort_keys=True) for group in groups]
        source.add(groups[2:])
    return drawn
