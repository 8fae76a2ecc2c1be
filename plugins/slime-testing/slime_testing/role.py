"""RoleContract: base of the contracts for one choice of a role, given by name or as a spec.

Example:

    class TestMath(RewardContract):
        choice = "slime-reward-math/math"        # or a RewardSpec, or "./my_rewards.py:math"
        settings = {"timeout_s": 5}
"""

import asyncio
import contextlib
import inspect
import sys
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import ClassVar, Generic, TypeVar, cast
from unittest import SkipTest

from slime_core.catalog import ALL_INSTALLED, Catalog, PluginWarning, RegisteredChoice
from slime_core.errors import ContractError, PluginError, WorkerError
from slime_core.processes import Protection, isolation_of
from slime_core.roles import CallSpec, Isolation, PluginSet, RewardContext, Settings, Setup, Spec, is_async
from slime_core.sample import Sample
from slime_core.score import Unscored
from slime_core.stats import CallStats, PluginStats
from slime_testing._state import changed_by, code_state
from slime_testing.contract import Contract, require

NOWHERE = "<nowhere>"
"""Name of a spec that worker processes cannot find."""
SEED = 1
"""Seed of the kit's runs."""
_ENDED = ("memory", "died", "output", "processes")
"""Failure reasons of calls that were ended by force."""
_ERRORS = {"contract": ContractError, **dict.fromkeys(_ENDED, WorkerError)}
_PROTECTIONS: dict[str, tuple[Protection, PluginStats]] = {}
_Ask = Callable[[object, RewardContext], Awaitable[object]]


def protected(
    registered: RegisteredChoice, settings: Settings, build: Callable[[], object], plugins: PluginSet
) -> object:
    """The isolated result of `build`; unchanged for roles without isolation.

    Raises:
        PluginError: spec and factory do not fit, or worker processes cannot find the spec.
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


def placed(spec: Spec[object]) -> RegisteredChoice:
    """A spec outside the catalog, with the module variable by which worker processes find it."""
    module = sys.modules.get(getattr(inspect.unwrap(spec.factory), "__module__", ""))
    file = getattr(module, "__file__", None)
    held = next((name for name, value in vars(module).items() if value is spec), None) if module and file else None
    return RegisteredChoice(spec, f"{file}:{held}" if held else NOWHERE, plugin=str(file), dist="", version="")


@contextlib.contextmanager
def samples_of_the_kit(wanted: str) -> Iterator[None]:
    """Skip the running check if the plugin raises for a sample made by the kit, since the author may have a better one.

    Raises:
        SkipTest: the plugin raised; `wanted` is the attribute that the author should set.
    """
    try:
        yield
    except (SkipTest, ContractError, WorkerError, TimeoutError):
        raise
    except Exception as error:
        # sys.exit and misspelt names are faults of the plugin, not of the sample.
        if not isinstance(error.__cause__ or error, Exception) or _is_mistake(error):
            raise
        raise SkipTest(f"needs the author's {wanted}: the kit's own raised {_said(error)}") from error


def _is_mistake(error: Exception) -> bool:
    text = _said(error)
    own = text.startswith(("NameError:", "UnboundLocalError:", "ImportError:", "ModuleNotFoundError:"))
    return own or (text.startswith("AttributeError:") and ("'Sample' object" in text or "Context' object" in text))


def _said(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    told = next((line for line in reversed(lines) if line[:1].isalpha() and ":" in line), "")
    return told if isinstance(error, PluginError) and told else f"{type(error).__name__}: {error}"


class _Outspoken:
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


SpecT = TypeVar("SpecT", bound=Spec[object])


class RoleContract(Contract, Generic[SpecT]):
    """Base of the contracts of all roles."""

    kind: ClassVar[type[Spec[object]]]
    """Spec class of the contract's role."""
    choice: ClassVar[str | Spec[object]]
    """The choice: a name in the catalog, or a spec."""
    settings: ClassVar[Mapping[str, object]] = {}
    """Settings of the choice."""
    plugins: ClassVar[PluginSet] = ALL_INSTALLED
    """Plugins in the catalog."""
    _discovered: ClassVar[Catalog]
    _code: ClassVar[Mapping[str, object]]

    @cached_property
    def spec(self) -> SpecT:
        """The spec of `choice`."""
        return cast(SpecT, self.registered.spec)

    @cached_property
    def registered(self) -> RegisteredChoice:
        """The spec of `choice`, with its origin."""
        kind, choice = self.kind, self.choice
        found: object = choice if isinstance(choice, Spec) else self._catalog().find(kind.role, choice)
        found = placed(found) if isinstance(found, Spec) else found
        spec = found.spec if isinstance(found, RegisteredChoice) else found
        require(isinstance(spec, kind), f"choice is a {type(spec).__name__}; expected a {kind.__name__}")
        return cast(RegisteredChoice, found)

    def validated(self, **settings: object) -> Settings:
        """Settings of the choice, validated like a section of a run file; given ones override the class's.

        Example: `self.spec.factory(self.validated(times=2), self.setup())` in a test needs no class of the plugin.
        """
        given = {**self.settings, **settings}
        missing = [key for key, info in self.spec.model.model_fields.items() if info.is_required() and key not in given]
        if missing and self.automatic:
            raise SkipTest(f"needs the author's `settings`: {', '.join(missing)} must be given")
        return self.spec.model.model_validate(given)

    def make(self, role: str, name: str, **settings: object) -> object:
        """Build another choice, as `Setup.make` does in a run."""
        catalog = catalog_of(self.plugins)
        found = catalog.find(role, name)
        validated = found.spec.model.model_validate(settings)
        build = partial(found.spec.factory, validated, self.setup())
        return protected(found, validated, build, catalog.plugin_set)

    def built(self) -> object:
        """The factory's object, in this process and without protection."""
        return self.spec.factory(self.validated(), self.setup())

    def isolated(self) -> object:
        """The factory's object, with calls isolated as its spec says."""
        settings = self.validated()
        build = partial(self.spec.factory, settings, self.setup())
        return protected(self.registered, settings, build, self._catalog().plugin_set)

    def setup(self) -> Setup:
        """The argument of most factories."""
        return Setup(self.make, seed=SEED)

    def _prepare(self) -> None:
        if "_code" not in type(self).__dict__:
            type(self)._code = code_state()

    def _require_nothing_changed(self, act: Callable[[], Coroutine[object, object, object]]) -> None:
        async def once() -> None:
            with contextlib.suppress(Exception, SystemExit):
                await act()

        changed = changed_by(lambda: asyncio.run(once()), self._code)
        require(not changed, f"a call {'; it '.join(changed)}")

    @classmethod
    def _catalog(cls) -> Catalog:
        known: Catalog | None = cls.__dict__.get("_discovered")
        if known is None:
            cls._discovered = known = catalog_of(cls.plugins)
        return known


def require_called_as(made: object, *arguments: str) -> None:
    """Fail the running check unless the made object accepts these positional arguments."""
    require(callable(made), f"the factory returned {made!r:.80}, which cannot be called")
    signature = inspect.signature(cast(Callable[..., object], made))
    try:
        signature.bind(*arguments)
    except TypeError as error:
        raise AssertionError(f"it takes {signature}, and is called as ({', '.join(arguments)}): {error}") from None


def require_methods(made: object, names: Iterable[str]) -> None:
    """Fail the running check unless the made object has these methods."""
    missing = [name for name in names if not callable(getattr(made, name, None))]
    require(not missing, f"{type(made).__name__} lacks {', '.join(missing)}")


def require_plain_def(made: object, *arguments: str) -> None:
    """Fail the running check unless the made object accepts these arguments and is not `async def`."""
    require_called_as(made, *arguments)
    require(not is_async(made), "it is `async def`; write a plain `def`")


def catalog_of(plugins: PluginSet) -> Catalog:
    """The catalog, without warnings about other broken plugins."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        return Catalog.discover(plugins, strict=False)
