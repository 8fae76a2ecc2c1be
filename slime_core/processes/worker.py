"""The code that runs inside worker processes: build an object, then answer the driver's calls.

There are two kinds: a worker of a launcher's group (`Host`, `serve`), and a worker with one plugin's isolated calls
(`main`). A launcher in another package makes a `Host` in each of its processes.

Example:

    host = Host()
    reply = answered(lambda: host.build(spec, place, setup.plugins))        # a Reply, also after an error
    reply = answered(lambda: host.call("train_step", (batch,)))
    host.close()
"""

import asyncio
import importlib
import inspect
import json
import os
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import cast

from slime_core.catalog import Catalog, check_verdict, discover_in_worker, find_project_files
from slime_core.catalog.checks import as_verdict, check_verdicts, checked_label
from slime_core.errors import ContractError, PluginError, SlimeError, drawn, said_by
from slime_core.processes.channel import LARGEST_ANSWER, packed, pickled, receive, receive_sample, send, send_verdict
from slime_core.processes.limits import ForkCount, die_with, limit_memory
from slime_core.roles import ChecksLabels, Place, PluginSet, RewardContext, Setup, WorkerGroupSpec
from slime_core.roles.rewards import misfit
from slime_core.sample import Json, Sample
from slime_core.score import NotApplicable, Unscored, Verdict
from slime_core.secrets import REDACTOR, redact_output

# Host: what runs in a worker's process, whatever has started it: it builds the group's class and answers calls.


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to one call."""

    value: object = None
    """What the method returned."""
    error: SlimeError | None = None
    """An error of ours, to be raised again in the driver as it is."""
    traceback: str = ""
    """Text of any other exception."""


class Host:
    """One worker's object, once it is built."""

    def __init__(self) -> None:
        """Build nothing yet; what this process prints from now on is without secrets."""
        redact_output(drawn)
        find_project_files()  # before anything that another process pickled is decoded here
        self._worker: object = None

    def build(self, spec: WorkerGroupSpec, place: Place, plugins: PluginSet | None) -> None:
        """Build `Class(rank, size, **arguments)`, with `place` where it takes one.

        Args:
            spec: the group.
            place: the worker's.
            plugins: the launcher's `setup.plugins`, which this process must have, too.

        Raises:
            PluginError: a plugin is missing, broken or of another version here.
            Exception: whatever the class raises.
        """
        if plugins is not None:
            discover_in_worker(plugins, f"{spec.name} {place.rank}")
        target = _load(spec.target)
        placed = {"place": place} if _takes_place(target) else {}
        self._worker = target(place.rank, spec.size, **spec.arguments, **placed)

    def call(self, method: str, given: tuple[object, ...]) -> object:
        """Call a method of it."""
        return getattr(self._worker, method)(*given)

    def close(self) -> None:
        """Let the worker close what it has, if it has a `close`; what it raises is printed."""
        if callable(close := getattr(self._worker, "close", None)):
            answered(close)


def answered(call: Callable[[], object]) -> Reply:
    """What a call returns or raises; what it raises is printed as well."""
    try:
        return Reply(call())
    except SlimeError as error:
        traceback.print_exc()
        return Reply(error=error)
    except Exception:
        traceback.print_exc()
        return Reply(traceback=REDACTOR.redact(traceback.format_exc()))


def _load(target: str) -> Callable[..., object]:
    """The class that `package.module:Class` names."""
    module, _, name = target.partition(":")
    found: Callable[..., object] = getattr(importlib.import_module(module), name)
    return found


def _takes_place(target: Callable[..., object]) -> bool:
    try:
        return "place" in inspect.signature(target).parameters
    except ValueError:  # a class of C code
        return False


# The loop of one worker of the local launcher: build an object, then answer the calls that come down its channel.

PRELOAD = __name__
"""What every server of workers imports before it forks."""
ENTRY = f"{__name__}:serve"
NUMBER = struct.Struct(">q")
"""Before what is called, and before its answer: the number of the call."""
BUILD = 0
"""That of the first, which builds the object."""


@dataclass(frozen=True, slots=True)
class Order:
    """What the first call asks for."""

    spec: WorkerGroupSpec
    """The group."""
    place: Place
    """The worker's."""
    plugins: PluginSet | None
    """What it must have."""


def serve(channel_fd: int, lifeline_fd: int) -> None:
    """Answer until the driver sends no more."""
    die_with(lifeline_fd)
    channel, host = socket.socket(fileno=channel_fd), Host()
    while (frame := _next(channel)) is not None:
        (number,) = NUMBER.unpack(frame[: NUMBER.size])
        body = frame[NUMBER.size :]
        reply = answered(lambda: _done(host, number, body))  # noqa: B023  # called before the next turn
        try:
            packed = pickled(reply)
        except Exception:  # what the worker returned
            packed = pickled(answered(lambda: pickled(reply)))  # noqa: B023
        send(channel, NUMBER.pack(number), packed)
    host.close()


def _done(host: Host, number: int, body: memoryview) -> object:
    asked = ForkingPickler.loads(body)
    if number == BUILD:
        order = cast(Order, asked)
        host.build(order.spec, order.place, order.plugins)
        return None
    method, given = cast(tuple[str, tuple[object, ...]], asked)
    return host.call(method, given)


def _next(channel: socket.socket) -> memoryview | None:
    try:
        return memoryview(receive(channel))
    except (EOFError, OSError):
        return None


# The worker process: builds one plugin's choice from the catalog, then answers calls on its main thread.

LONGEST_DETAIL = 4_000
"""Characters of an error's text that are sent back; its end says most."""


@dataclass(frozen=True, slots=True)
class Worked:
    """What this worker is for."""

    role: str
    plugin: str
    call: Callable[..., object]
    loop: asyncio.AbstractEventLoop

    def verdicts(self, samples: Sequence[Sample], ctx: RewardContext) -> list[Verdict]:
        """The plugin's checked answer."""
        if self.role == "group_reward":
            answer = self._finished(self.call(samples, ctx))
            return list(check_verdicts(answer, plugin=self.plugin, samples=samples))
        answer = self._finished(self.call(samples[0], ctx))
        return [check_verdict(answer, plugin=self.plugin, sample=samples[0])]

    def label(self, sample: Sample) -> Verdict:
        """What the plugin makes of the gold answer alone: `Unscored` where nothing can be scored against it."""
        called: object = self.call
        if not isinstance(called, ChecksLabels):
            return NotApplicable()
        why = checked_label(called.check_label(sample))
        return NotApplicable() if why is None else Unscored(why)

    def _finished(self, answer: object) -> object:
        return self.loop.run_until_complete(answer) if inspect.iscoroutine(answer) else answer


def main(channel_fd: int, lifeline_fd: int) -> None:
    """Serve until the other end closes."""
    die_with(lifeline_fd)
    channel = socket.socket(fileno=channel_fd)
    forks = ForkCount()
    start = cast(dict[str, Json], json.loads(receive(channel)))
    limit_memory(cast(int, start["memory_mb"]))
    try:
        worked = _build(start)
    except BaseException as error:
        traceback.print_exc()
        send(channel, packed({"failed": f"{type(error).__name__}: {said_by(error)}", "call": start["call"]}))
        raise SystemExit(1) from None
    send(channel, packed({"ready": True, "call": start["call"]}))
    own, role = os.getpid(), worked.role
    while True:
        try:
            request = cast(dict[str, Json], json.loads(receive(channel)))
        except (EOFError, ConnectionError):
            os.killpg(0, signal.SIGKILL)
        forks.start()
        answer = _answer(worked, request)
        if os.getpid() != own:
            os._exit(0)  # a fork that the plugin let return: only the first of them speaks
        signal.setitimer(signal.ITIMER_REAL, 0)  # an alarm that was left on would end the next call
        with suppress(Exception):
            sys.stdout.flush()
        body = packed({**answer, "call": request["call"]})
        if len(body) > LARGEST_ANSWER:
            answer = _error("output", f"the {role} answered with {len(body)} bytes; {LARGEST_ANSWER} are taken")
            body = packed({**answer, "call": request["call"]})
        send(channel, body)


def _answer(worked: Worked, request: Mapping[str, Json]) -> dict[str, Json]:
    try:
        samples = [receive_sample(each) for each in cast(list[dict[str, Json]], request["samples"])]
        if "check_label" in request:
            return {"verdicts": [send_verdict(worked.label(samples[0]))]}
        ctx = _context(cast(dict[str, Json], request["ctx"]))
        return {"verdicts": [send_verdict(verdict) for verdict in worked.verdicts(samples, ctx)]}
    except MemoryError:
        return _error("memory", "it asked for more memory than its spec allows (memory_mb)")
    except ContractError as error:
        return _error("contract", str(error))
    except BaseException as error:
        return _error(type(error).__name__, traceback.format_exc())


def _context(values: Mapping[str, Json]) -> RewardContext:
    return RewardContext(cast(int, values["rollout_id"]), bool(values["evaluation"]), cast(int, values["seed"]))


def _error(reason: str, detail: str) -> dict[str, Json]:
    return {"error": reason, "detail": detail[-LONGEST_DETAIL:]}


def _build(start: Mapping[str, Json]) -> Worked:
    """The choice that a start frame names, made as in the driver."""
    role, name, plugin = (str(start[key]) for key in ("role", "name", "plugin"))
    plugins = _plugin_set(cast(dict[str, Json], start["plugins"]))
    catalog = Catalog.discover(_only(plugins, plugin), strict=False)
    seed = cast(int, start["seed"])
    whole: list[Catalog] = []

    def make(role: str, name: str, **settings: object) -> object:
        if not whole:
            whole.append(Catalog.discover(plugins, strict=False))
        spec = whole[0].find(role, name).spec
        made = spec.factory(spec.model.model_validate(settings), Setup(make, seed))
        return _awaited(made, as_verdict if role == "reward" else lambda answer: answer)

    for value, words in cast(dict[str, str], start["secrets"]).items():
        REDACTOR.add(value, words)
    spec = catalog.find(role, name).spec
    made = spec.factory(spec.model.model_validate(start["settings"]), Setup(make, seed))
    if (why := misfit(made, spec.name, role)) is not None:
        raise PluginError(why)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return Worked(role, plugin, cast(Callable[..., object], made), loop)


def _awaited(made: object, convert: Callable[[object], object]) -> object:
    """The choice as a coroutine function, however it was written; its answers converted."""
    if not callable(made):
        return made

    async def call(subject: object, ctx: object) -> object:
        answer = made(subject, ctx)
        return convert(await answer if inspect.isawaitable(answer) else answer)

    return call


def _plugin_set(values: Mapping[str, Json]) -> PluginSet:
    return PluginSet(
        only=tuple(cast(list[str], values["only"])),
        modules=tuple(cast(list[str], values["modules"])),
        expected=cast(dict[str, str], values["expected"]),
        root=Path(str(values["root"])),
    )


def _only(plugins: PluginSet, plugin: str) -> PluginSet:
    """The set with only the plugin that is needed: importing the others would cost time and memory."""
    return replace(
        plugins,
        only=tuple(each for each in plugins.only or () if each == plugin),
        modules=tuple(each for each in plugins.modules if each == plugin),
        expected={name: version for name, version in plugins.expected.items() if name == plugin},
    )
