"""BatchTransformContract: what every batch transform must keep, BTR-001 to BTR-006.

Example:

    class TestTurns(BatchTransformContract):
        choice = "slime-batch-turns/turns"
        groups = [a_group_with_turns()]
"""

import copy
from collections.abc import Callable, Sequence
from typing import ClassVar, cast
from unittest import SkipTest

from slime_core.batching.prepare import check_columns
from slime_core.roles import BatchTransformSpec, ShapeContext
from slime_core.sample import Group, Sample
from slime_testing.contract import check, require
from slime_testing.groups import odd_groups, require_quick, require_unchanged, varied_groups
from slime_testing.reward_shaper import raw
from slime_testing.role import RoleContract, require_plain_def


class BatchTransformContract(RoleContract[BatchTransformSpec]):
    """Inherit and name the batch transform."""

    kind = BatchTransformSpec
    choice: ClassVar[str | BatchTransformSpec]
    """The batch transform: a name for the catalog, or a spec."""
    groups: ClassVar[Sequence[Group] | None] = None
    """Finished groups that it can read; the kit has its own otherwise."""

    @check("BTR-001")
    def test_the_factory_builds_a_batch_transform(self) -> None:
        """The core calls `transform(sample, group, ctx)`, a plain `def`: it computes and waits for nothing."""
        require_plain_def(self.built(), "sample", "group", "ctx")

    @check("BTR-002", needs=("BTR-001", "BTR-005"))
    def test_it_makes_the_columns_that_its_spec_declares(self) -> None:
        """Return a value for every declared column: a finite number, or one a response token. Masks only take out."""
        for group in self._given():
            for sample in group.samples:
                self._columns(sample, group)

    @check("BTR-003", needs=("BTR-002",))
    def test_it_leaves_the_group_as_it_was(self) -> None:
        """What it adds it returns: write to nothing that is given."""
        for group in self._given():
            require_unchanged([group], lambda given: self._transform(given[0].samples[0], given[0]))

    @check("BTR-004", needs=("BTR-002",))
    def test_the_same_sample_gets_the_same_columns(self) -> None:
        """A resumed run asks again and must get the same: keep nothing between calls, and draw from `setup.seed`."""
        made, group = self._made(), self._given()[0]
        sample, ctx = group.samples[0], context(group)
        answers = [repr(each(copy.deepcopy(sample), group, ctx)) for each in (made, made, self._made())]
        require(len(set(answers)) == 1, "asked again about the same sample, it answered otherwise")

    @check("BTR-005", needs=("BTR-001",))
    def test_it_computes_quickly(self) -> None:
        """It runs in the driver, once a sample: compute little, and read no file and no network."""
        made, group = self._made(), self._given()[0]
        require_quick(lambda: made(copy.deepcopy(group.samples[0]), group, context(group)))

    @check("BTR-006", needs=("BTR-002",))
    def test_odd_samples_are_transformed_too(self) -> None:
        """Samples may be unscored, or have no response token: a token column is then empty."""
        if self.groups is not None:
            raise SkipTest("the contract gives its own groups")
        for group in odd_groups():
            for sample in group.samples:
                self._columns(sample, group)

    def _made(self) -> Callable[..., object]:
        return cast(Callable[..., object], self.built())

    def _transform(self, sample: Sample, group: Group) -> object:
        return self._made()(sample, group, context(group))

    def _columns(self, sample: Sample, group: Group) -> None:
        returned = self._transform(sample, group)
        check_columns(returned, plugin=self.registered.plugin, sample=sample, grains=self.spec.columns)

    def _given(self) -> list[Group]:
        """The groups; skips where there is no author and the kit's own are not of the kind that it reads."""
        groups = list(self.groups or varied_groups())
        if self.automatic:
            try:
                self._transform(copy.deepcopy(groups[0].samples[0]), groups[0])
            except SkipTest:
                raise
            except Exception as error:
                raise SkipTest(f"needs the author's `groups`: the kit's own raised {error!r}") from error
        return groups


def context(group: Group) -> ShapeContext:
    """The context in which the checks call a transform."""
    return ShapeContext(rollout_id=3, rewards=raw([group]))
