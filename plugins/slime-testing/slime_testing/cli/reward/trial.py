"""Trial: a reward on samples of a file, isolated and limited as in a run; nobody trains on the answers.

Example:

    trial = Trial(registered, settings, catalog, "math")
    answers = [answer async for answer in trial.score(rows)]
"""

import asyncio
import traceback
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

import slime_core
import slime_testing
from slime_core.aio import cancel_all
from slime_core.catalog import Catalog, Registered, check_verdict
from slime_core.catalog.checks import check_verdicts
from slime_core.errors import ContractError
from slime_core.processes import Protection, StartError, Watchdog
from slime_core.roles import GroupReward, GroupRewardSpec, Reward, RewardContext, Settings
from slime_core.sample import Status
from slime_core.score import Unscored, Verdict
from slime_core.seeds import derive_seed
from slime_core.stats import PluginStats
from slime_testing.cli import SEED, setup_of
from slime_testing.cli.reward.rows import SampleRow, grouped

IN_FLIGHT = 256
"""Rows, or groups, being scored at once; the spec's own limit counts besides."""
ATTEMPTS = 2
"""Calls that a retryable failure is worth, as in a run."""
OURS = (Path(slime_core.__file__).parent, Path(slime_testing.__file__).parent)
UNFINISHED = (Status.ABORTED, Status.FAILED)
"""Samples that a run does not score."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One row and what the reward said of it."""

    row: SampleRow
    """The row."""
    verdict: Verdict | None
    """The answer; None: a run would not score a sample of this status."""


class Trial:
    """A reward or a group reward, built as a run builds it.

    Raises:
        PluginError: its factory and its spec do not fit.
    """

    def __init__(self, registered: Registered, settings: Settings, catalog: Catalog, name: str) -> None:
        spec = registered.spec
        self._stats = PluginStats()
        self._protection = Protection(plugins=catalog.plugin_set, seed=SEED, stats=self._stats)
        build = partial(spec.factory, settings, setup_of(catalog, self._protection))
        self._reward = self._protection.protect(registered, settings, build, name=name)
        self._plugin = registered.plugin
        self._grouped = isinstance(spec, GroupRewardSpec)
        self.calls = self._stats.calls(spec.role, name, registered.plugin)
        """How long calls took, and how many failed."""

    async def score(self, rows: Sequence[SampleRow]) -> AsyncIterator[Answer]:
        """The answers, in the order of the rows; for a group reward, group after group.

        Raises:
            PluginError: a worker process cannot build the plugin.
        """
        units = list(grouped(rows)) if self._grouped else [[row] for row in rows]
        slots = asyncio.Semaphore(IN_FLIGHT)
        tasks: list[asyncio.Task[list[Answer]]] = []
        try:
            await self._protection.start()
            with Watchdog(self._stats, packages={}):
                tasks += [asyncio.create_task(self._unit(unit, slots)) for unit in units]
                for task in tasks:
                    for answer in await task:
                        yield answer
        finally:
            await cancel_all(tasks)
            self._protection.close()

    async def _unit(self, rows: Sequence[SampleRow], slots: asyncio.Semaphore) -> list[Answer]:
        """Ask about the finished samples of one row or one group."""
        asked = [row for row in rows if row.sample.status not in UNFINISHED]
        verdicts: dict[int, Verdict] = {}
        async with slots:
            for _ in range(ATTEMPTS if asked else 0):
                verdicts = dict(zip((row.number for row in asked), await self._ask(asked), strict=True))
                if not any(isinstance(each, Unscored) and each.retryable for each in verdicts.values()):
                    break
        return [Answer(row, verdicts.get(row.number)) for row in rows]

    async def _ask(self, rows: Sequence[SampleRow]) -> Sequence[Verdict]:
        """One call, checked; what goes wrong in it is an `Unscored` that says so."""
        samples = [row.sample for row in rows]
        ctx = RewardContext(rollout_id=0, evaluation=False, seed=derive_seed(SEED, rows[0].number))
        try:
            if self._grouped:
                answers = await cast(GroupReward, self._reward)(samples, ctx)
                return check_verdicts(answers, plugin=self._plugin, samples=samples)
            answer = await cast(Reward, self._reward)(samples[0], ctx)
            return [check_verdict(answer, plugin=self._plugin, sample=samples[0])]
        except TimeoutError as error:
            failed = Unscored("timeout", retryable=True, detail=str(error))
        except ContractError as error:
            self.calls.errors += 1
            failed = Unscored("contract", detail=str(error))
        except StartError:
            raise
        except Exception as error:
            failed = Unscored(type(error).__name__, detail=_in_the_plugin(error))
        return [failed] * len(samples)


def _in_the_plugin(error: Exception) -> str:
    """The traceback from where it leaves our code."""
    trace = error.__traceback__
    while (
        trace is not None and trace.tb_next and any(map(Path(trace.tb_frame.f_code.co_filename).is_relative_to, OURS))
    ):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))
