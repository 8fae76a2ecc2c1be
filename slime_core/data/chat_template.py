"""Turns chat messages into prompt text with the model's own Jinja template, in a worker process with limits.

The template is code that comes with a model, so only a sandboxed worker compiles and runs it. The text depends only on
the messages and one fixed date, so a run resumed on another day gets the same prompts.
"""

import json
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime
from functools import cached_property
from itertools import islice
from typing import TypeVar, cast

from slime_core.errors import DataError, ModelError
from slime_core.processes.forked import Forked, Output, TooLong
from slime_core.processes.server import shared_server
from slime_core.processes.worker import ENTRY, PRELOAD, BuildRequest, pickled
from slime_core.roles import Place, WorkerGroupSpec
from slime_core.sample import Json, Message

WORKER = "slime_core.data.template_worker"
"""Module of the worker process; the fork server imports it in advance."""
LIMIT_S = 10.0
"""Time limit of a request in seconds; an ordinary text takes less than a millisecond."""
START_S = 60.0
"""Seconds for a new worker to compile the templates; it may first have to import Jinja."""
MEMORY_MB = 512
"""Memory limit of a worker in MiB."""
LARGEST_TEMPLATE = 1 << 20
"""Most characters of a template; well-known models have at most 30,000."""
LARGEST_ANSWER = 32 << 20
"""Most bytes of an answer."""
MOST_STOPS = 3
"""Requests stopped at a limit in a row before the template is not used any more."""
_ROWS = frozenset({"messages", "tools"})
"""Template variables that come from a row."""
LONGEST_TAIL = 2_000
"""Bytes of a worker's output that an error shows."""
MADE, REFUSED, FAILED = "made", "refused", "failed"
"""First item of an answer; the text or the problem follows."""
Answer = tuple[str, str]
CHUNK = 64
"""Rows whose texts share a request; one request per row would more than double the reading time."""
RowT = TypeVar("RowT")
ReadT = TypeVar("ReadT")
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class ChatTemplate:
    """The chat templates of a model, by name: "default", and perhaps "tool_use" for prompts with tools.

    The worker starts at the first call, and again after a call that exceeded a limit. Threads take turns.
    """

    def __init__(
        self, sources: Mapping[str, str], special_tokens: Mapping[str, str], owner: str, day: date | None = None
    ) -> None:
        """Keep the templates; the first call finds a broken one.

        Args:
            sources: Jinja text of each template.
            special_tokens: variables such as `bos_token`.
            owner: the model directory, for errors.
            day: the date that `strftime_now` formats; None: today.

        Raises:
            ModelError: a template is too long.
        """
        if longest := [name for name, text in sources.items() if len(text) > LARGEST_TEMPLATE]:
            raise ModelError(
                f"the chat template {longest[0]!r} of {owner} has more than {LARGEST_TEMPLATE} characters: "
                "the templates of known models are much shorter, so check this file"
            )
        self.special_tokens = special_tokens
        """Variables such as `bos_token`."""
        self._sources, self._owner = sources, owner
        self._day = day or datetime.now().astimezone().date()
        self._worker: _Worker | None = None
        self._reads: Sequence[str] = ()
        self._lock, self._stops, self._chunk = threading.Lock(), 0, _Chunk()

    @cached_property
    def arguments(self) -> frozenset[str]:
        """Names that the templates read, without a row's fields; ModelError if a template is not valid Jinja."""
        with self._lock:
            self._running()
            return frozenset(self._reads) - _ROWS

    def render(self, messages: Sequence[Message], tools: Json = None, kwargs: Mapping[str, Json] | None = None) -> str:
        """Return the messages as prompt text, with the generation prompt unless `kwargs` exclude it.

        Raises:
            DataError: the template rejects the messages, fails on them, or exceeds a limit of time or size.
            ModelError: a template is not valid Jinja, or has exceeded its limits too often.
        """
        request, answers = self._request(messages, tools, kwargs), self._chunk.answers
        answer = self._ask([request])[0] if answers is None else answers.setdefault(request, None)
        if answer is None:
            raise _NotRendered
        result, text = answer
        if result == MADE:
            return text
        verb = "refuses" if result == REFUSED else "fails with"
        raise DataError(f"the chat template of {self._owner} {verb} the messages: {text}")

    def read_rows(self, rows: Iterable[RowT], read: Callable[[RowT], ReadT]) -> Iterator[tuple[RowT, ReadT]]:
        """Yield each row with the result of `read`, in order; one request renders the texts of many rows.

        `read` stops at a text that is not rendered yet, and is called again later: it must have no side effects.
        """
        rows = iter(rows)
        while chunk := list(islice(rows, CHUNK)):
            answers, found = dict[str, Answer | None](), dict[int, ReadT]()
            while len(found) < len(chunk):
                if missing := [request for request, answer in answers.items() if answer is None]:
                    answers.update(zip(missing, self._ask(missing), strict=True))
                self._chunk.answers = answers
                try:
                    for place in [each for each in range(len(chunk)) if each not in found]:
                        with suppress(_NotRendered):
                            found[place] = read(chunk[place])
                finally:
                    self._chunk.answers = None
            yield from ((row, found[place]) for place, row in enumerate(chunk))

    def _request(self, messages: Sequence[Message], tools: Json, kwargs: Mapping[str, Json] | None) -> str:
        name = "tool_use" if tools is not None and "tool_use" in self._sources else "default"
        defaults = {**self.special_tokens, "add_generation_prompt": True, "documents": None}
        try:
            return _ENCODER.encode([name, {**defaults, **(kwargs or {}), "messages": messages, "tools": tools}])
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(f"messages, tools and template arguments must be plain JSON: {error}") from None

    def _ask(self, requests: Sequence[str]) -> list[Answer]:
        """Return the worker's answers. If the requests exceed a limit together, send each half alone."""
        with self._lock:
            if self._stops >= MOST_STOPS:
                raise ModelError(
                    f"the chat template of {self._owner} was stopped {self._stops} times in a row, at a limit of time "
                    "or memory, and is not used again: correct its chat_template.jinja"
                )
            worker = self._running()
            try:
                answers = cast(list[Answer], worker.exchange(("render", ([*requests],)), LIMIT_S))
            except (_Stopped, ModelError) as error:  # a ModelError: no memory for the requests themselves
                self._stop()
                if len(requests) == 1:
                    return [(FAILED, str(error))]
                self._stops -= 1  # counted when the request is sent alone
            except BaseException:
                self._stop()
                raise
            else:
                self._stops = 0
                return answers
        half = len(requests) // 2
        return self._ask(requests[:half]) + self._ask(requests[half:])

    def _running(self) -> "_Worker":
        """Return a worker that has compiled the templates; a fork of this process gets a new one."""
        if self._worker is None or self._worker.owner != os.getpid():
            self._worker = _Worker()
            arguments = {"sources": self._sources, "day": self._day.isoformat(), "memory_mb": MEMORY_MB}
            spec = WorkerGroupSpec("chat template", 1, f"{WORKER}:TemplateWorker", arguments)
            try:
                self._worker.exchange(BuildRequest(spec, Place(0), None, answers_json=True), START_S)
                self._reads = cast(list[str], self._worker.exchange(("arguments", ()), LIMIT_S))
            except BaseException as error:
                self._stop()  # else its late answer would answer the next request
                if not isinstance(error, _Stopped | ModelError):
                    raise
                why = f"cannot be compiled: {error}" if isinstance(error, _Stopped) else error
                raise ModelError(f"the chat template of {self._owner} {why}") from None
        return self._worker

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None
        self._stops += 1


class _Chunk(threading.local):
    answers: dict[str, Answer | None] | None = None
    """Answers for the rows that this thread reads together, by request; None until it is sent."""


class _NotRendered(BaseException):
    """The text is not rendered yet; its request is in the chunk."""


class _Stopped(Exception):
    """Raised when a worker gives no answer; the text says why."""


class _Worker:
    def __init__(self) -> None:
        self.owner = os.getpid()
        self._output = Output(LONGEST_TAIL)
        with self._output.opened() as output:
            self._process = shared_server([PRELOAD, WORKER]).fork(ENTRY, title="chat template", output=output)
        self.end = weakref.finalize(self, _end, self._process, self._output)
        """Kills the worker, once."""

    def exchange(self, request: object, timeout_s: float) -> object:
        """Return the answer to one request; ModelError if the worker raised an error, `_Stopped` without an answer."""
        try:
            body = pickled(request)
            value, error = json.loads(self._process.call_blocking(body, limit=LARGEST_ANSWER, timeout_s=timeout_s))
        except TimeoutError:
            raise _Stopped(f"it is not done after {timeout_s:g} s") from None
        except TooLong:
            raise _Stopped(f"it has made more than {LARGEST_ANSWER} bytes") from None
        except (EOFError, OSError, ValueError):
            why = f"its process ended, perhaps because it needs more than {MEMORY_MB} MiB"
            raise _Stopped(f"{why}{self._output.printed()}") from None
        if error:
            raise ModelError(error)
        return cast(object, value)


def _end(process: Forked, output: Output) -> None:
    process.close()
    output.close()
