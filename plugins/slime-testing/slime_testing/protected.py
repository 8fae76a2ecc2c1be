"""Rewards as a run has them: where their spec says that they run, with its limits; workers outlive a check.

Example:

    reward = protected(registered, settings, build, PluginSet())
    verdict = await reward(sample, ctx)         # raises where a run would leave the sample unscored
"""

import contextlib
import inspect
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import cast
from unittest import SkipTest

from slime_core.catalog import Registered
from slime_core.errors import ContractError, PluginError, WorkerError
from slime_core.processes import Protection, isolation_of
from slime_core.roles import CallSpec, Isolation, PluginSet, RewardContext, Settings, Spec
from slime_core.sample import Sample
from slime_core.score import Unscored
from slime_core.stats import CallStats, PluginStats

NOWHERE = "<nowhere>"
"""Name of a spec that no worker process can find."""
SEED = 1
"""The seed of every run that the kit plays."""
_ENDED = ("memory", "died", "output", "processes")
"""Reasons of calls that were ended by force."""
_ERRORS = {"contract": ContractError, **dict.fromkeys(_ENDED, WorkerError)}
_PROTECTIONS: dict[str, tuple[Protection, PluginStats]] = {}
_Ask = Callable[[object, RewardContext], Awaitable[object]]


def protected(registered: Registered, settings: Settings, build: Callable[[], object], plugins: PluginSet) -> object:
    """What `build` makes of a choice, isolated; the same as it is for a role that is not isolated.

    Raises:
        PluginError: its spec and what its factory makes do not fit, or no worker process can find it.
    """
    spec = registered.spec
    if not isinstance(spec, CallSpec):
        return build()
    made = None if spec.isolation is Isolation.PROCESS else build()
    if isolation_of(spec, made) is Isolation.PROCESS and registered.qualified == NOWHERE:
        raise PluginError(
            f"{spec.role} {spec.name!r} runs in a process of its own, which finds it by name: let `choice` be a name "
            '("my-plugin/name", "./my_rewards.py:function"), or a spec that a variable of its module holds'
        )
    if repr(plugins) not in _PROTECTIONS:
        stats = PluginStats()
        _PROTECTIONS[repr(plugins)] = (Protection(plugins=plugins, seed=SEED, stats=stats), stats)
    protection, stats = _PROTECTIONS[repr(plugins)]
    calls = stats.calls(spec.role, registered.qualified, registered.plugin)
    call = protection.protect(registered, settings, lambda: made, name=registered.qualified)
    return _Outspoken(cast(_Ask, call), calls)


def placed(spec: Spec[object]) -> Registered:
    """A spec that no catalog has, with the variable of a module by which a worker process finds it."""
    module = sys.modules.get(getattr(inspect.unwrap(spec.factory), "__module__", ""))
    file = getattr(module, "__file__", None)
    held = next((name for name, value in vars(module).items() if value is spec), None) if module and file else None
    return Registered(spec, f"{file}:{held}" if held else NOWHERE, plugin=str(file), dist="", version="")


@contextlib.contextmanager
def samples_of_the_kit(wanted: str) -> Iterator[None]:
    """Skip the running check where a plugin raises at a sample that the kit made up, and the author has a better one.

    Raises:
        SkipTest: it raised; `wanted` is what the author should set.
    """
    try:
        yield
    except (SkipTest, ContractError, WorkerError, TimeoutError):
        raise
    except Exception as error:
        # sys.exit and misspelt names are not an answer to an odd sample.
        if not isinstance(error.__cause__ or error, Exception) or _is_mistake(error):
            raise
        raise SkipTest(f"needs the author's {wanted}: the kit's own raised {_said(error)}") from error


def _is_mistake(error: Exception) -> bool:
    """Whether code raised what no sample can be blamed for: a name that does not exist, its own or the core's."""
    text = _said(error)
    own = text.startswith(("NameError:", "UnboundLocalError:", "ImportError:", "ModuleNotFoundError:"))
    return own or (text.startswith("AttributeError:") and ("'Sample' object" in text or "Context' object" in text))


def _said(error: Exception) -> str:
    """The last line of an error, as a traceback ends; that of a worker process is its own."""
    lines = str(error).strip().splitlines()
    told = next((line for line in reversed(lines) if line[:1].isalpha() and ":" in line), "")
    return told if isinstance(error, PluginError) and told else f"{type(error).__name__}: {error}"


class _Outspoken:
    """A reward whose failed calls raise: in a check an `Unscored` is an answer, and a failure is not."""

    def __init__(self, call: _Ask, calls: CallStats) -> None:
        self._call, self._calls = call, calls

    async def __call__(self, subject: Sample | Sequence[Sample], ctx: RewardContext) -> object:
        errors, timeouts = self._calls.errors, self._calls.timeouts
        answer = await self._call(subject, ctx)
        first = answer[0] if isinstance(answer, list) and answer else answer
        if isinstance(first, Unscored) and self._calls.timeouts > timeouts:
            raise TimeoutError(first.detail)
        if isinstance(first, Unscored) and self._calls.errors > errors:
            raise _ERRORS.get(first.reason, PluginError)(first.detail)
        return answer
