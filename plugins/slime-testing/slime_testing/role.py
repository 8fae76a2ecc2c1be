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
"""Name of a spec that worker processes cannot import."""
SEED = 1
"""Seed of the kit's runs."""
_ENDED = ("memory", "died", "output", "processes")
"""Failure reasons of calls that were ended by force."""
_ERRORS = {"contract": ContractError, **dict.fromkeys(_ENDED, WorkerError)}
_PROTECTIONS: dict[str, tuple[Protection, PluginStats]] = {}
_Ask = Callable[[object, RewardContext], Awaitable[object]]


def isolate(
    registered: RegisteredChoice, settings: Settings, build: Callable[[], object], plugins: PluginSet
) -> object:
    """The isolated result of `build`; unchanged for roles without isolation.

    Raises:
        PluginError: spec and factory do not fit, or worker processes cannot find the spec.
    """
    spec = registered.spec
    if not isinstance(spec, CallSpec):
        return build()
    built = None if spec.isolation is Isolation.PROCESS else build()
    if isolation_of(spec, built) is Isolation.PROCESS and registered.qualified == NOWHERE:
        raise PluginError(
            f"{spec.role} {spec.name!r} runs in a worker process, which cannot find this spec. Set `choice` to a name "
            '("my-plugin/name", "./my_rewards.py:function"), or store the spec in a module variable.'
        )
    if repr(plugins) not in _PROTECTIONS:
        stats = PluginStats()
        _PROTECTIONS[repr(plugins)] = (Protection(plugins=plugins, seed=SEED, stats=stats), stats)
    protection, stats = _PROTECTIONS[repr(plugins)]
    calls = stats.calls(spec.role, registered.qualified, registered.plugin)
    call = protection.protect(registered, settings, lambda: built, name=registered.qualified)
    return _RaisesErrors(cast(_Ask, call), calls)


def register_spec(spec: Spec[object]) -> RegisteredChoice:
    """A spec outside the catalog, registered under the module variable by which worker processes find it."""
    module = sys.modules.get(getattr(inspect.unwrap(spec.factory), "__module__", ""))
    file = getattr(module, "__file__", None)
    held = next((name for name, value in vars(module).items() if value is spec), None) if module and file else None
    return RegisteredChoice(spec, f"{file}:{held}" if held else NOWHERE, plugin=str(file), dist="", version="")


@contextlib.contextmanager
def samples_of_the_kit(wanted: str) -> Iterator[None]:
    """Skip the running check if the plugin raises for a sample of the kit: it may need other samples.

    Raises:
        SkipTest: the plugin raised; `wanted` is the attribute that the author should set.
    """
    try:
        yield
    except (SkipTest, ContractError, WorkerError, TimeoutError):
        raise
    except Exception as error:
        # sys.exit and misspelt names are faults of the plugin, not of the sample.
        if not isinstance(error.__cause__ or error, Exception) or _is_plugin_bug(error):
            raise
        raise SkipTest(f"needs the author's {wanted}: the kit's samples raised {_error_line(error)}") from error


def _is_plugin_bug(error: Exception) -> bool:
    text = _error_line(error)
    own = text.startswith(("NameError:", "UnboundLocalError:", "ImportError:", "ModuleNotFoundError:"))
    return own or (text.startswith("AttributeError:") and ("'Sample' object" in text or "Context' object" in text))


def _error_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    last = next((line for line in reversed(lines) if line[:1].isalpha() and ":" in line), "")
    return last if isinstance(error, PluginError) and last else f"{type(error).__name__}: {error}"


class _RaisesErrors:
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
    """The choice to check: a name in the catalog, or a spec."""
    settings: ClassVar[Mapping[str, object]] = {}
    """Settings of the choice."""
    plugins: ClassVar[PluginSet] = ALL_INSTALLED
    """Plugins to load."""
    _discovered: ClassVar[Catalog]
    _code: ClassVar[Mapping[str, object]]

    @cached_property
    def spec(self) -> SpecT:
        """The spec of `choice`."""
        return cast(SpecT, self.registered.spec)

    @cached_property
    def registered(self) -> RegisteredChoice:
        """The spec of `choice`, with the plugin and package that offer it."""
        kind, choice = self.kind, self.choice
        found: object = choice if isinstance(choice, Spec) else self._catalog().find(kind.role, choice)
        found = register_spec(found) if isinstance(found, Spec) else found
        spec = found.spec if isinstance(found, RegisteredChoice) else found
        require(isinstance(spec, kind), f"`choice` is a {type(spec).__name__}; expected a {kind.__name__}")
        return cast(RegisteredChoice, found)

    def make_settings(self, **settings: object) -> Settings:
        """Settings of the choice, validated like a section of a run file. Arguments override `self.settings`.

        Example: `self.spec.factory(self.make_settings(times=2), self.setup())` builds the choice in an additional test.
        """
        given = {**self.settings, **settings}
        missing = [key for key, info in self.spec.model.model_fields.items() if info.is_required() and key not in given]
        if missing and self.automatic:
            raise SkipTest(f"needs the author's `settings`: {', '.join(missing)} must be set")
        return self.spec.model.model_validate(given)

    def make(self, role: str, name: str, **settings: object) -> object:
        """Build another choice, like `Setup.make` in a run."""
        catalog = catalog_of(self.plugins)
        found = catalog.find(role, name)
        validated = found.spec.model.model_validate(settings)
        build = partial(found.spec.factory, validated, self.setup())
        return isolate(found, validated, build, catalog.plugin_set)

    def build(self) -> object:
        """The object that the factory returns, in this process and without isolation."""
        return self.spec.factory(self.make_settings(), self.setup())

    def build_isolated(self) -> object:
        """The object that the factory returns, with calls isolated according to its spec."""
        settings = self.make_settings()
        build = partial(self.spec.factory, settings, self.setup())
        return isolate(self.registered, settings, build, self._catalog().plugin_set)

    def setup(self) -> Setup:
        """The `setup` argument of most factories."""
        return Setup(self.make, seed=SEED)

    def _prepare(self) -> None:
        if "_code" not in type(self).__dict__:
            type(self)._code = code_state()

    def _require_nothing_changed(self, act: Callable[[], Coroutine[object, object, object]]) -> None:
        async def once() -> None:
            with contextlib.suppress(Exception, SystemExit):
                await act()

        changed = changed_by(lambda: asyncio.run(once()), self._code)
        require(not changed, f"a call {'; it '.join(changed)}. Plugins must leave process-wide state unchanged.")

    @classmethod
    def _catalog(cls) -> Catalog:
        known: Catalog | None = cls.__dict__.get("_discovered")
        if known is None:
            cls._discovered = known = catalog_of(cls.plugins)
        return known


def require_called_as(built: object, *arguments: str) -> None:
    """Fail the running check unless the built object accepts these positional arguments."""
    require(callable(built), f"the factory returned {built!r:.80}, which is not callable")
    signature = inspect.signature(cast(Callable[..., object], built))
    try:
        signature.bind(*arguments)
    except TypeError as error:
        expected = ", ".join(arguments)
        raise AssertionError(f"its signature is {signature}; expected ({expected}): {error}") from None


def require_methods(built: object, names: Iterable[str]) -> None:
    """Fail the running check unless the built object has these methods."""
    missing = [name for name in names if not callable(getattr(built, name, None))]
    require(not missing, f"{type(built).__name__} has no method {', '.join(missing)}")


def require_plain_def(built: object, *arguments: str) -> None:
    """Fail the running check unless the built object accepts these arguments and is not `async def`."""
    require_called_as(built, *arguments)
    require(not is_async(built), "the factory returned an `async def`; write a plain `def`")


def catalog_of(plugins: PluginSet) -> Catalog:
    """A catalog of these plugins; suppresses warnings about plugins that cannot be loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        return Catalog.discover(plugins, strict=False)
