"""Turns chat messages into prompt text with the model's own Jinja template, in a worker process with limits.

The template is code that comes with a model, so only a sandboxed worker compiles and runs it. The result depends on
the messages and one fixed date alone, so a run resumed on another day gets the same prompts.
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

from slime_core.errors import ConfigError, DataError, ModelError, did_you_mean
from slime_core.processes.forked import Forked, Output, TooLong
from slime_core.processes.server import shared_server
from slime_core.sample import Json, Message

WORKER = "slime_core.data.template_worker"
"""Module of the worker process, which the server of such workers imports before it forks."""
LIMIT_S = 10.0
"""Seconds that one request may take: an ordinary text takes less than a millisecond."""
START_S = 60.0
"""Seconds until a new worker has compiled the templates; it may have to import Jinja first."""
MEMORY_MB = 512
"""Mebibytes that a worker may allocate."""
LARGEST_TEMPLATE = 1 << 20
"""Characters of one template; those of well-known models have at most 30,000."""
LARGEST_ANSWER = 32 << 20
"""Bytes of one answer."""
MOST_STOPS = 3
"""Requests in a row after whose failure at a limit the template is not tried again."""
_ROWS = frozenset({"messages", "tools"})
"""What a template reads of a row."""
LONGEST_TAIL = 2_000
"""Bytes of what a worker printed that an error shows."""
MADE, REFUSED, FAILED, MEMORY = "made", "refused", "failed", "memory"
"""What an answer begins with; the text, or what is wrong, follows."""
Answer = tuple[str, str]
CHUNK = 64
"""Rows whose texts share a request: a request for each row would more than double the time to read them."""
RowT = TypeVar("RowT")
ReadT = TypeVar("ReadT")
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class ChatTemplate:
    """A model's chat templates by name: "default", and maybe "tool_use" for prompts with tools.

    Its worker starts with the first call, and again after a call that passed a limit. Threads take turns.
    """

    def __init__(
        self, sources: Mapping[str, str], special_tokens: Mapping[str, str], owner: str, day: date | None = None
    ) -> None:
        """Keep the templates; a broken one is found at the first call.

        Args:
            sources: Jinja text of each template.
            special_tokens: variables such as `bos_token`.
            owner: the model directory, for error texts.
            day: what `strftime_now` formats; None: today.

        Raises:
            ModelError: a template is too long.
        """
        if longest := [name for name, text in sources.items() if len(text) > LARGEST_TEMPLATE]:
            raise ModelError(
                f"the chat template {longest[0]!r} of {owner} has more than {LARGEST_TEMPLATE} characters: "
                "templates of models are shorter by far, so put the right one there"
            )
        self._sources, self._special_tokens, self._owner = dict(sources), dict(special_tokens), owner
        self._day = day or datetime.now().astimezone().date()
        self._worker: _Worker | None = None
        self._reads: Sequence[str] = ()
        self._lock, self._stops, self._chunk = threading.Lock(), 0, _Chunk()

    @cached_property
    def arguments(self) -> frozenset[str]:
        """Names that any of the templates reads, but for what it gets from a row.

        Raises:
            ModelError: a template is not valid Jinja.
        """
        with self._lock:
            self._running()
            return frozenset(self._reads) - _ROWS

    def check_kwargs(self, kwargs: Mapping[str, Json]) -> None:
        """See that the templates read every argument.

        Raises:
            ConfigError: they never read one of them.
            ModelError: a template is not valid Jinja.
        """
        for name in kwargs:
            if name not in self.arguments | {"add_generation_prompt"}:
                known = sorted(self.arguments - self._special_tokens.keys())
                raise ConfigError(
                    f"apply_chat_template_kwargs: the chat template of {self._owner} takes no argument {name!r}."
                    f"{did_you_mean(name, known)} It reads: {', '.join(known) or 'none'}"
                )

    def render(self, messages: Sequence[Message], tools: Json = None, kwargs: Mapping[str, Json] | None = None) -> str:
        """The messages as prompt text; the generation prompt is added unless `kwargs` say otherwise.

        Raises:
            DataError: the template refuses the messages, fails with them, takes too long or makes too much of them.
            ModelError: a template is not valid Jinja, or has passed its limits too often.
        """
        request, answers = self._request(messages, tools, kwargs), self._chunk.answers
        answer = self._ask([request])[0] if answers is None else answers.setdefault(request, None)
        if answer is None:
            raise _NotRendered
        result, text = answer
        if result == MADE:
            return text
        verb = "refuses" if result == REFUSED else "fails with"
        why = f"it needs more than {MEMORY_MB} MiB of memory" if result == MEMORY else text
        raise DataError(f"the chat template of {self._owner} {verb} the messages: {why}")

    def read_rows(self, rows: Iterable[RowT], read: Callable[[RowT], ReadT]) -> Iterator[tuple[RowT, ReadT]]:
        """Each row and what `read` makes of it, in order; the texts of many rows are rendered in one request.

        A call of `read` ends where it needs a text that is not rendered yet, and is repeated: it must have no effects.
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
        defaults = {**self._special_tokens, "add_generation_prompt": True, "documents": None}
        try:
            return _ENCODER.encode([name, {**defaults, **(kwargs or {}), "messages": messages, "tools": tools}])
        except (TypeError, ValueError, RecursionError) as error:
            raise DataError(f"messages, tools and template arguments must be plain JSON: {error}") from None

    def _ask(self, requests: Sequence[str]) -> list[Answer]:
        """The worker's answers; each request is sent alone if together they pass a limit.

        Raises:
            ModelError: as of `render`.
        """
        with self._lock:
            if self._stops >= MOST_STOPS:
                raise ModelError(
                    f"the chat template of {self._owner} was stopped {self._stops} times in a row, at a limit of time "
                    "or memory, and is not used again: correct its chat_template.jinja"
                )
            worker = self._running()
            try:
                answers = cast(list[Answer], worker.ask(f"[{','.join(requests)}]", LIMIT_S))
            except _Stopped as stopped:
                self._stop()
                if len(requests) == 1:
                    return [(FAILED, str(stopped))]
                self._stops -= 1  # counted when its request is sent alone
            except BaseException:
                self._stop()
                raise
            else:
                if any(result == MEMORY for result, _ in answers):
                    self._stop()  # which gives the memory back
                else:
                    self._stops = 0
                return answers
        return [answer for each in requests for answer in self._ask([each])]

    def _running(self) -> "_Worker":
        """A worker that has compiled the templates; another one in a fork of the process that had the last."""
        if self._worker is None or self._worker.owner != os.getpid():
            self._worker = _Worker()
            start = [self._sources, self._day.isoformat(), MEMORY_MB]
            try:
                result, found = cast(tuple[str, str | list[str]], self._worker.ask(json.dumps(start), START_S))
            except _Stopped as stopped:
                result, found = FAILED, f"cannot be compiled: {stopped}"
            if result != MADE:
                self._stop()
                raise ModelError(f"the chat template of {self._owner} {found}")
            self._reads = found
        return self._worker

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = None
        self._stops += 1


class _Chunk(threading.local):
    answers: dict[str, Answer | None] | None = None
    """Of the rows that this thread reads together, by request; None until the request is sent."""


class _NotRendered(BaseException):
    """The request is noted in the chunk."""


class _Stopped(Exception):
    """Why a worker gave no answer."""


class _Worker:
    def __init__(self) -> None:
        self.owner = os.getpid()
        self._output = Output(LONGEST_TAIL)
        with self._output.opened() as output:
            self._process = shared_server([WORKER], {}).fork(f"{WORKER}:main", title="chat template", output=output)
        self.end = weakref.finalize(self, _end, self._process, self._output)
        """Kill it, unless that was done before."""

    def ask(self, request: str, timeout_s: float) -> object:
        """The answer to one request.

        Raises:
            _Stopped: there is none.
        """
        try:
            body = request.encode("utf-8", "surrogatepass")
            answer = self._process.channel.exchange(body, limit=LARGEST_ANSWER, timeout_s=timeout_s)
            return cast(object, json.loads(answer.decode("utf-8", "surrogatepass")))
        except TimeoutError:
            raise _Stopped(f"it is not done after {timeout_s:g} s") from None
        except TooLong:
            raise _Stopped(f"it has made more than {LARGEST_ANSWER} bytes") from None
        except (EOFError, OSError, ValueError):
            raise _Stopped(f"its process ended, perhaps for want of memory{self._output.printed()}") from None


def _end(process: Forked, output: Output) -> None:
    process.close()
    output.close()
