"""Code inside worker processes: build an object, then answer the driver's calls.

`serve` is the main loop of all workers, both of a launcher's group and with a plugin's reward (`RewardHost`). A
launcher in another package creates a `Host` in each of its processes.

Example:

    host = Host()
    reply = make_reply(lambda: host.build(spec, place, setup.plugins))        # a Reply, even after an error
    reply = make_reply(lambda: host.call("train_step", (batch,)))
    host.close()
"""

import asyncio
import importlib
import inspect
import io
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.reduction import ForkingPickler
from typing import cast

from slime_core.catalog import Catalog, check_verdict, discover_in_worker, find_project_files
from slime_core.catalog.checks import as_verdict, check_label_result, check_verdicts
from slime_core.errors import ContractError, PluginError, SlimeError, drawn
from slime_core.processes.forked import receive, send
from slime_core.processes.limits import ForkCount, limit_memory
from slime_core.roles import ChecksLabels, Place, PluginSet, RewardContext, Setup, WorkerGroupSpec
from slime_core.roles.rewards import signature_error
from slime_core.sample import Json, Sample
from slime_core.score import NotApplicable, Score, Unscored, Verdict
from slime_core.secrets import REDACTOR, redact_output


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer to one call: a value, a `SlimeError` for the driver to raise, or another error's traceback."""

    value: object = None
    error: SlimeError | None = None
    traceback: str = ""


class Host:
    """Builds and calls the object of one worker, under any launcher."""

    def __init__(self) -> None:
        """Build no object yet; from now on secrets are redacted in this process's output."""
        redact_output(drawn)
        find_project_files()  # before the first unpickling of another process's data
        self._worker: object = None

    def build(self, spec: WorkerGroupSpec, place: Place, plugins: PluginSet | None) -> None:
        """Build `Class(rank, size, **arguments)`, with `place` if the class accepts it.

        Raises:
            PluginError: a plugin in the launcher's `plugins` is missing or has another version here.
            Exception: what the class raises.
        """
        if plugins is not None:
            discover_in_worker(plugins, f"{spec.name} {place.rank}")
        target = _load(spec.target)
        placed = {"place": place} if _takes_place(target) else {}
        self._worker = target(place.rank, spec.size, **spec.arguments, **placed)

    def call(self, method: str, arguments: tuple[object, ...]) -> object:
        """Call a method of the object."""
        return getattr(self._worker, method)(*arguments)

    def close(self) -> None:
        """Call the object's `close` if it has one; an error is printed."""
        if callable(close := getattr(self._worker, "close", None)):
            make_reply(close)


def make_reply(call: Callable[[], object]) -> Reply:
    """Return the reply with a call's value or error; an error is also printed."""
    try:
        return Reply(call())
    except SlimeError as error:
        traceback.print_exc()
        return Reply(error=error)
    except Exception:
        traceback.print_exc()
        return Reply(traceback=REDACTOR.redact(traceback.format_exc()))


def _load(target: str) -> Callable[..., object]:
    module, _, name = target.partition(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), name)
    return found


def _takes_place(target: Callable[..., object]) -> bool:
    try:
        return "place" in inspect.signature(target).parameters
    except ValueError:  # a class written in C
        return False


def pickled(value: object) -> bytes:
    """Pickle a value. `ForkingPickler.dumps` returns a buffer view, which warns when it is collected in a cycle."""
    buffer = io.BytesIO()
    ForkingPickler(buffer).dump(value)
    return buffer.getvalue()


# The main loop of every worker: answer the calls from the channel.

PRELOAD = __name__
"""Module that every server of workers imports before a fork."""
ENTRY = f"{__name__}:serve"


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """The first call: what to build. Each later call is a method name with arguments."""

    spec: WorkerGroupSpec
    place: Place
    plugins: PluginSet | None
    answers_json: bool = False
    """Whether answers are JSON with a value and an error text; otherwise a pickled `Reply`."""


def serve(channel_fd: int) -> None:
    """Build one object and answer calls until the driver sends no more."""
    channel, own, host = socket.socket(fileno=channel_fd), os.getpid(), Host()
    answers_json = False

    def work(body: bytearray) -> object:
        nonlocal answers_json
        request = ForkingPickler.loads(body)
        if isinstance(request, BuildRequest):
            answers_json = request.answers_json
            host.build(request.spec, request.place, request.plugins)
            return None
        method, arguments = cast(tuple[str, tuple[object, ...]], request)
        return host.call(method, arguments)

    while True:
        try:
            body = receive(channel)
        except (EOFError, OSError):
            break
        reply = make_reply(partial(work, body))
        if os.getpid() != own:
            os._exit(0)  # a plugin returned from a fork: only the first process may answer
        signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm that a plugin left on would hit the next call
        with suppress(Exception):
            sys.stdout.flush()
        send(channel, _as_json(reply) if answers_json else _as_pickle(reply))
    host.close()


def _as_pickle(reply: Reply) -> bytes:
    try:
        return pickled(reply)
    except Exception:  # the value cannot be pickled: reply with that error
        return pickled(make_reply(lambda: pickled(reply)))


def _as_json(reply: Reply) -> bytes:
    error = str(reply.error) if reply.error is not None else reply.traceback.strip().rpartition("\n")[2]
    return json.dumps([reply.value, error]).encode()


# A worker's object with one plugin's reward. It gets a copy of the fields that the spec names. Its answers are JSON,
# because the driver must not unpickle data from a reward.

IDENTITY = ("group_index", "index")
"""Sample fields that are always sent, to name the sample in errors."""
LARGEST_ANSWER = 1 << 20
"""Most bytes of one reward's answer."""
LONGEST_DETAIL = 4_000
"""Characters of an error text that are sent back, from its end."""


REWARD_HOST = f"{__name__}:RewardHost"


class RewardHost:
    """Builds and calls one plugin's reward or group reward in its worker."""

    def __init__(
        self,
        rank: int,
        size: int,
        *,
        role: str,
        name: str,
        plugin: str,
        settings: Mapping[str, object],
        plugins: PluginSet,
        secrets: Mapping[str, str],
        seed: int,
        memory_mb: int,
    ) -> None:
        """Build a choice as the driver does; `secrets` are the replacement words for each secret value."""
        limit_memory(memory_mb)
        self._role, self._plugin, self._forks = role, plugin, ForkCount()
        catalog = Catalog.discover(_only(plugins, plugin), strict=False)
        whole: list[Catalog] = []

        def make(role: str, name: str, **settings: object) -> object:
            if not whole:
                whole.append(Catalog.discover(plugins, strict=False))
            spec = whole[0].find(role, name).spec
            built = spec.factory(spec.model.model_validate(settings), Setup(make, seed))
            return _awaited(built, as_verdict if role == "reward" else lambda answer: answer)

        for value, words in secrets.items():
            REDACTOR.add(value, words)
        spec = catalog.find(role, name).spec
        built = spec.factory(spec.model.model_validate(settings), Setup(make, seed))
        if (why := signature_error(built, spec.name, self._role)) is not None:
            raise PluginError(why)
        self._call = cast(Callable[..., object], built)
        self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def answer(self, samples: Sequence[Sample], ctx: RewardContext | None) -> dict[str, Json]:
        """Return verdicts on samples, or an error. Without a context, return `check_label` of the first sample."""
        self._forks.restart()
        try:
            verdicts = [self._label(samples[0])] if ctx is None else self._verdicts(samples, ctx)
            return {"verdicts": [send_verdict(verdict) for verdict in verdicts]}
        except MemoryError:
            return _error("memory", "it asked for more memory than its spec allows (memory_mb)")
        except ContractError as error:
            return _error("contract", str(error))
        except BaseException as error:
            return _error(type(error).__name__, traceback.format_exc())

    def _verdicts(self, samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:
        many = self._role == "group_reward"
        answer = self._call(samples if many else samples[0], ctx)
        if inspect.iscoroutine(answer):
            answer = self._loop.run_until_complete(answer)
        if many:
            return list(check_verdicts(answer, plugin=self._plugin, samples=samples))
        return [check_verdict(answer, plugin=self._plugin, sample=samples[0])]

    def _label(self, sample: Sample) -> Verdict:
        called: object = self._call
        why = check_label_result(called.check_label(sample)) if isinstance(called, ChecksLabels) else None
        return NotApplicable() if why is None else Unscored(why)


def _error(reason: str, detail: str) -> dict[str, Json]:
    return {"error": reason, "detail": detail[-LONGEST_DETAIL:]}


def _awaited(built: object, convert: Callable[[object], object]) -> object:
    if not callable(built):
        return built

    async def call(subject: object, ctx: object) -> object:
        answer = built(subject, ctx)
        return convert(await answer if inspect.isawaitable(answer) else answer)

    return call


def _only(plugins: PluginSet, plugin: str) -> PluginSet:
    """Reduce the set to one plugin, to save the time and memory of importing the others."""
    return replace(
        plugins,
        only=tuple(each for each in plugins.only or () if each == plugin),
        modules=tuple(each for each in plugins.modules if each == plugin),
        expected={name: version for name, version in plugins.expected.items() if name == plugin},
    )


class PartialSample(Sample):
    """A copy of a sample with the fields that the spec names; reading another field raises ContractError."""

    __slots__ = ()

    def __getattr__(self, name: str) -> object:
        if name not in Sample.__dataclass_fields__:
            raise AttributeError(f"'Sample' object has no attribute {name!r}")
        raise ContractError(
            f"sample.{name} was read, but the spec does not declare it: in a worker process a sample has only "
            f"{', '.join(self.copied_fields())}. Write fields=(*LIGHT_FIELDS, {name!r}) in the spec"
        )

    def copied_fields(self) -> dict[str, object]:
        """Return the fields that were copied."""
        return {name: getattr(Sample, name).__get__(self) for name in Sample.__dataclass_fields__ if _has(self, name)}

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        return None, self.copied_fields()

    def __repr__(self) -> str:
        return f"Sample({', '.join(f'{name}={value!r}' for name, value in self.copied_fields().items())})"


def _has(sample: Sample, name: str) -> bool:
    try:
        getattr(Sample, name).__get__(sample)
    except AttributeError:
        return False
    return True


def copy_fields(sample: Sample, wanted: Collection[str]) -> PartialSample:
    """Copy the wanted fields of a sample and its `IDENTITY`; lists and dicts are shared."""
    copied = object.__new__(PartialSample)
    for name in {*IDENTITY, *wanted}:
        setattr(copied, name, getattr(sample, name))
    return copied


def send_verdict(verdict: Verdict) -> dict[str, Json]:
    """Convert a checked verdict to plain JSON."""
    match verdict:
        case Score(value=value, components=components):
            return {"score": float(value), "components": {str(name): float(each) for name, each in components.items()}}
        case Unscored(reason=reason, retryable=retryable, detail=detail):
            return {"unscored": reason, "retryable": retryable, "detail": detail}
        case NotApplicable():
            return {"not_applicable": True}


def receive_verdict(values: Json) -> Verdict:
    """Convert JSON from `send_verdict` back to a verdict; ValueError for any other value."""
    match values:
        case {"score": float(value), "components": dict(components)}:
            parts = {name: each for name, each in components.items() if isinstance(each, float)}
            if len(parts) == len(components):
                return Score(value, parts)
        case {"unscored": str(reason), "retryable": bool(retryable), "detail": str(detail)} if reason:
            return Unscored(reason, retryable, detail)
        case {"not_applicable": True}:
            return NotApplicable()
    raise ValueError("a worker's answer is not a verdict")
