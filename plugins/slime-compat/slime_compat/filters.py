"""slime's three filters: of groups (dynamic sampling), of samples, and of the buffer.

The core hands out copies and does the removing, so that a filter which does not remove cannot hand out a group twice.
"""

import copy
import logging
from collections.abc import Sequence

from slime_compat.arguments import Arguments
from slime_compat.function import load
from slime_compat.settings import FunctionSettings
from slime_compat.slime_api.base_types import DynamicFilterOutput
from slime_compat.slime_api.types import Sample as SlimeSample
from slime_core import Group
from slime_core.errors import ContractError
from slime_core.roles import (
    BufferContext,
    Decision,
    Drop,
    FilterContext,
    Keep,
    KeepIfShort,
    Removal,
    Selection,
)

_log = logging.getLogger(__name__)


class SlimeDynamicFilter:
    """`f(args, group)` for `--dynamic-sampling-filter-path` as a group filter."""

    def __init__(self, settings: FunctionSettings) -> None:
        """Load the function.

        Raises:
            PluginError: it cannot be called as slime calls it.
        """
        self._function = load(settings.path, ("args", "samples"), is_async=False)
        self._args = Arguments(settings.args, "group_filter.dynamic_filter")

    def __call__(self, group: Group, ctx: FilterContext) -> Decision:
        """Its decision; what is not a `DynamicFilterOutput` counts by its truth, as in slime."""
        output = self._function(self._args, _copies(group))
        if not isinstance(output, DynamicFilterOutput):
            output = DynamicFilterOutput(keep=bool(output))
        if output.keep:
            return Keep()
        reason = output.reason or "dynamic_filter"
        return KeepIfShort(reason) if output.keep_when_insufficient else Drop(reason)


class SlimeSampleFilter:
    """`f(args, groups)` for `--rollout-sample-filter-path`, which sets `remove_sample`, as a sample filter."""

    def __init__(self, settings: FunctionSettings) -> None:
        """Load the function.

        Raises:
            PluginError: it cannot be called as slime calls it.
        """
        self._function = load(settings.path, ("args", "groups"), is_async=False)
        self._args = Arguments(settings.args, "sample_filter.rollout_filter")

    def __call__(self, groups: Sequence[Group], ctx: FilterContext) -> list[Removal]:
        """The samples that it marked."""
        given = [_copies(group) for group in groups]
        self._function(self._args, [list(samples) for samples in given])
        return [
            Removal(group.id, position, "remove_sample")
            for group, samples in zip(groups, given, strict=True)
            for position, (before, after) in enumerate(zip(group.samples, samples, strict=True))
            if after.remove_sample and not before.remove_sample
        ]


class SlimeBufferFilter:
    """`f(args, None, buffer, num_samples)` for `--buffer-filter-path` as a buffer filter."""

    def __init__(self, settings: FunctionSettings) -> None:
        """Load the function.

        Raises:
            PluginError: it cannot be called as slime calls it.
        """
        self._function = load(settings.path, ("args", "rollout_id", "buffer", "num_samples"), is_async=False)
        self._args = Arguments(settings.args, "buffer_filter.buffer_filter")
        self._path = settings.path
        self._told: set[str] = set()

    def select(self, groups: Sequence[Group], want: int, ctx: BufferContext) -> Selection:
        """What it returned is taken; what it deleted without returning it is dropped.

        Raises:
            ContractError: it returned no list, or a group that was not in the buffer.
        """
        given = [_copies(group) for group in groups]
        buffer = list(given)
        # slime passes None for the rollout's number, whatever its documentation says.
        returned = self._function(self._args, None, buffer, want)
        if not isinstance(returned, list):
            raise ContractError(f"{self._path} returned {type(returned).__name__}; expected a list of groups")
        place = {id(group): number for number, group in enumerate(given)}
        if any(id(group) not in place for group in returned):
            raise ContractError(f"{self._path} returned a group that is not one of the buffer's own lists")
        taken = list(dict.fromkeys(place[id(group)] for group in returned))
        left = {place[id(group)] for group in buffer if id(group) in place}
        if len(taken) > want:
            self._report(f"returned {len(taken)} groups when {want} were wanted; the first {want} are taken")
        if left & set(taken):
            self._report("did not delete what it returned from the buffer: in slime it would be trained on for ever")
        drop = [number for number in range(len(given)) if number not in left and number not in taken]
        return Selection(take=taken[:want], drop=drop)

    def _report(self, what: str) -> None:
        if what.split(" ", 1)[0] not in self._told:
            self._told.add(what.split(" ", 1)[0])
            _log.warning("buffer filter %s %s (said once)", self._path, what)


def _copies(group: Group) -> list[SlimeSample]:
    return [SlimeSample.of(copy.copy(sample)) for sample in group.samples]
