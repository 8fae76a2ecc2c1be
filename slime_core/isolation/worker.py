"""The worker process: builds one plugin's choice from the catalog, then answers calls on its main thread.

Started by `WorkerProcess`, spoken to over a socket. What the plugin prints goes elsewhere, and a fork of it that comes
back from a call ends there.
"""

import asyncio
import inspect
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from slime_core.catalog import Catalog
from slime_core.catalog.checks import as_verdict, check_verdict, check_verdicts, checked_label
from slime_core.errors import ContractError, PluginError, said_by
from slime_core.isolation._limits import ForkCount
from slime_core.isolation.wire import LARGEST_ANSWER, packed, receive_sample, send_verdict
from slime_core.processes.channel import receive, send
from slime_core.processes.leash import die_with
from slime_core.processes.limits import limit_memory
from slime_core.roles import ChecksLabels, PluginSet, RewardContext, Setup
from slime_core.roles.foreign_shape import misfit
from slime_core.sample import Json, Sample
from slime_core.score import NotApplicable, Unscored, Verdict
from slime_core.secrets import REDACTOR

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
