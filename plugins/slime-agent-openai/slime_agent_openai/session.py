"""Session: answers the requests of one sample's agent: prompt, engine call, parsing, commit.

A reply is committed to the forest before its client receives the end. If the client hangs up, the engine cancels the
reply and nothing is stored.

Example:

    session = Session(context, limits, Bridge(tokenizer), family)
    reply = await session.reply(request, listener)
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from slime_agent_openai.bridge import NEEDS_TEMPLATE, Bridge
from slime_agent_openai.errors import IN_SECTION, ApiError, bad_request, session_closed, unsupported
from slime_agent_openai.forest import Forest, Plan
from slime_agent_openai.message import Delta, Finish, Message, Reply, Request, RequestedSetting, Role, TextDelta
from slime_agent_openai.parsers.answer import AnswerReader, Family
from slime_agent_openai.parsers.families import RAW
from slime_agent_openai.parsers.registry import no_parser_message
from slime_core.data import HfTokenizer
from slime_core.errors import ConfigError, LimitError, ModelError
from slime_core.roles import FinishReason, GenerateChunk, GenerateContext, GenerateOutput, SamplingParams

LEAVE_OUT = f'remove it, or set on_sampling = "ignore" {IN_SECTION}'


def sampling_for(
    own: SamplingParams, request: Request, *, is_free: bool, on_sampling: Literal["refuse", "ignore"]
) -> tuple[SamplingParams, bool]:
    """Sampling settings of a reply, and whether a request of its agent was ignored; `is_free`: apply all requests."""
    ignored = [wanted for wanted in request.sampling if not _is_applied(own, wanted, is_free=is_free)]
    if ignored and on_sampling == "refuse":
        raise _refusal(own, ignored[0])
    changes = {
        each.setting: each for each in request.sampling if each not in ignored and each.value != _value_of(own, each)
    }
    if not changes and not request.stop:
        return own, bool(ignored)
    try:
        values = {name: each.value for name, each in changes.items()}
        return replace(own, stop=(*own.stop, *request.stop), **values), bool(ignored)  # type: ignore[arg-type]  # keys and types were checked above
    except ValueError as error:
        raise bad_request(str(error), next((each.field for each in changes.values()), "stop")) from None


def _is_applied(own: SamplingParams, wanted: RequestedSetting, *, is_free: bool) -> bool:
    return bool(wanted.setting) and (is_free or wanted.value == _value_of(own, wanted))


def _refusal(own: SamplingParams, wanted: RequestedSetting) -> ApiError:
    if not wanted.setting:
        return unsupported(wanted.field, f"training samples the model's unmodified distribution; {LEAVE_OUT}")
    run_value, requested = _shown(_value_of(own, wanted)), _shown(wanted.value)
    return unsupported(wanted.field, f"this run trains with {run_value}, not {requested}; {LEAVE_OUT}")


def _value_of(own: SamplingParams, wanted: RequestedSetting) -> float:
    value: float = getattr(own, wanted.setting)
    return value


def _shown(value: float) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


@dataclass(slots=True)
class Stops:
    """Forwards a reply's text up to the first stop text."""

    wanted: Sequence[str]  # The stop texts
    text: str = ""  # Text passed on so far
    matched: str | None = None  # The stop text that was found
    _held: str = ""

    def filter_deltas(self, deltas: Sequence[Delta]) -> Iterator[Delta]:
        for delta in deltas:
            if not isinstance(delta, TextDelta):
                yield from self._emit(self._held)
                self._held = ""
                yield delta
            elif self.matched is None:
                yield from self._search(self._held + delta.text)

    def end(self) -> list[Delta]:
        held, self._held = self._held, ""
        return list(self._emit(held))

    def _search(self, text: str) -> Iterator[Delta]:
        found = [(place, stop) for stop in self.wanted if (place := text.find(stop)) >= 0]
        if found:
            place, self.matched = min(found)
            self._held = ""
            yield from self._emit(text[:place])
            return
        size = max((n for stop in self.wanted for n in range(1, len(stop)) if text.endswith(stop[:n])), default=0)
        self._held = text[len(text) - size :]
        yield from self._emit(text[: len(text) - size])

    def _emit(self, text: str) -> Iterator[Delta]:
        if text:
            self.text += text
            yield TextDelta(text)


LONG_TEXT = 2_000
"""Length, in characters, above which a text is encoded in a thread: 18,700 tokens block the driver for 89 ms."""


class Listener(Protocol):
    """Receives a reply while it is generated."""

    def begin(self, prompt_tokens: int) -> None: ...

    def add(self, delta: Delta) -> None: ...


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """Limits of one session."""

    max_turns: int | None = None  # Replies; None: the run's limit
    max_turn_tokens: int | None = None  # Tokens of one reply; None: all tokens that are left
    on_sampling: Literal["refuse", "ignore"] = "refuse"
    """How to handle an agent's own sampling settings in training, where the run's settings apply."""
    on_constraints: Literal["refuse", "ignore"] = "refuse"
    """How to handle format constraints, which have no effect here."""
    keeps_template: bool = False  # Whether to drop earlier reasoning at a new question, where the template does


class Session:
    """The conversations of one sample."""

    def __init__(
        self,
        context: GenerateContext,
        limits: SessionLimits,
        bridge: Bridge,
        family: Family,
        *,
        misfit: str = "",
        name: str | None = None,
    ) -> None:
        """`misfit`: why tools may not be offered, if `family` cannot read the model's calls.

        `name`: key by which routers keep the session on one server.
        """
        self.key = secrets.token_urlsafe(24)  # The agent's key, which cannot be guessed
        self._bridge, self._name = bridge, name
        self.forest = Forest(bridge, keeps_template=limits.keeps_template)  # Its conversations
        self.counts = Counter({"constraints_ignored": 0})  # More counts, by metric name
        self.interrupted = asyncio.Event()
        """Set once requests are refused: the run aborted this sample and runs it again, or `fatal_error` is set."""
        self.fatal_error: ConfigError | None = None  # Why no sample of this run can be generated, once known
        self.exceeded_limit = False  # Whether the agent exceeded a limit
        self._context, self._limits, self._family = context, limits, family
        self._misfit = misfit if family.reads_calls else no_parser_message(str(context.tokenizer), family.name)
        self._is_closed = False
        self._turns = 0
        self._turn_counts: Counter[str] = Counter()

    def new_id(self, kind: str) -> str:
        return f"{kind}_{secrets.token_hex(12)}"

    def close(self) -> None:
        self._is_closed = True

    async def prompt_tokens(self, request: Request) -> int:
        self._require_open()
        plan = self.forest.plan(request)
        prompt, _ = self.forest.prompt(plan, await self._encode(plan.text))
        return len(prompt)

    async def reply(self, request: Request, listener: Listener | None = None) -> Reply:
        self._require_open()
        self._require_turn()
        self._check_constraints(request)
        sampling = self._sampling(request)
        self._turns += 1
        try:
            return await self._generate_reply(request, sampling, listener)
        except BaseException:
            self._turns -= 1
            raise

    async def _generate_reply(self, request: Request, sampling: SamplingParams, listener: Listener | None) -> Reply:
        plan = self._plan(request)
        prompt, new = self.forest.prompt(plan, await self._encode(plan.text))
        sampling = replace(sampling, max_new_tokens=self._token_limit(plan, prompt, request))
        reading = self._reading(request, plan)
        stream = _ReplyStream(reading, Stops(request.stop), listener)
        if listener is not None:
            listener.begin(len(prompt))
        turn_hash = self.forest.hashed(plan, new)
        turn_hash.update(repr(sampling).encode())
        output = await self._generate(
            prompt, sampling, turn_hash.hexdigest(), stream.chunk if listener is not None else None
        )
        if listener is None:
            stream.tokens(output.tokens)
        message = stream.end(output)
        self.counts["malformed_calls"] += reading.malformed
        node = self.forest.commit(plan, new, message, output)
        self.forest.name(node, request.ids)
        cached = len(prompt) - len(new)
        return Reply(
            message,
            _finish(message, output),
            len(prompt),
            cached,
            output.tokens,
            output.log_probs,
            self._texts(output.tokens) if request.log_probs else (),
            reading.reasoning_tokens,
            stream.stops.matched,
        )

    def _reading(self, request: Request, plan: Plan) -> AnswerReader:
        if request.raw:
            return AnswerReader(self._context.tokenizer, RAW, self.new_id, (), thinks=False)
        thinks = self._family.thinks(plan.text)
        return AnswerReader(self._context.tokenizer, self._family, self.new_id, plan.tools, thinks)

    async def _generate(
        self,
        prompt: Sequence[int],
        sampling: SamplingParams,
        turn_hash: str,
        on_chunk: Callable[[GenerateChunk], None] | None,
    ) -> GenerateOutput:
        """The engine's output. Its turn name depends on the request's content, not on its time."""
        number = self._turn_counts[turn_hash]
        self._turn_counts[turn_hash] += 1
        try:
            turn = f"{turn_hash}/{number}"
            output = await self._context.generate(prompt, sampling, turn=turn, session=self._name, on_chunk=on_chunk)
        except BaseException as error:
            self._turn_counts[turn_hash] -= 1
            if isinstance(error, LimitError):
                self.exceeded_limit = True
                raise ApiError(400, str(error), code="turn_limit") from None
            raise
        if output.finish is FinishReason.ABORT:
            self.interrupted.set()
            raise ApiError(503, "the run interrupted this session", code="interrupted")
        return output

    def _plan(self, request: Request) -> Plan:
        try:
            if self._misfit and request.tools:
                self._bridge.whole([Message(Role.USER, "Hello.")])  # a missing chat template is the better error
                raise self._end("tools", self._misfit)
            return self.forest.plan(request)
        except ModelError as error:
            raise self._end("messages", f"{error}; {NEEDS_TEMPLATE}") from None

    def _end(self, field: str, why: str) -> ApiError:
        """End the run for an error that no agent can fix; returns the error for its request."""
        self.fatal_error = ConfigError(why)
        self.interrupted.set()
        return unsupported(field, why)

    def _sampling(self, request: Request) -> SamplingParams:
        context, on_sampling = self._context, self._limits.on_sampling
        sampling, is_ignored = sampling_for(
            context.sampling, request, is_free=context.evaluation, on_sampling=on_sampling
        )
        self.counts["sampling_ignored"] += is_ignored
        return sampling

    def _check_constraints(self, request: Request) -> None:
        """Refuse a reply format, or count the formats that are ignored."""
        for constraint in request.constraints:
            if self._limits.on_constraints == "refuse":
                raise unsupported(constraint.field, f'{constraint.why}, or set on_constraints = "ignore" {IN_SECTION}')
            self.counts["constraints_ignored"] += 1
        self.counts["call_rules_ignored"] += request.has_call_rules

    def _token_limit(self, plan: Plan, prompt: Sequence[int], request: Request) -> int:
        used = len(prompt) - _first_prompt(plan, prompt)
        left = self._context.sampling.max_new_tokens - used
        if left <= 0:
            most = self._context.sampling.max_new_tokens
            self._refuse(f"prompt is too long: this session has used {used} of its {most} tokens")
        context = self._context.max_context
        if context is not None and len(prompt) >= context:
            self._refuse(
                f"prompt is too long: {len(prompt)} tokens; this model's maximum context length is {context} tokens"
            )
        limits = [left, request.max_tokens, self._limits.max_turn_tokens]
        limits += [context - len(prompt)] if context is not None else []
        return min(room for room in limits if room is not None)

    def _refuse(self, text: str) -> None:
        self.exceeded_limit = True
        raise ApiError(400, text, code="context_length_exceeded", param="messages")

    def _require_open(self) -> None:
        if self._is_closed:
            raise session_closed()
        if self.interrupted.is_set():
            raise ApiError(400, "the run interrupted this session and runs its sample again", code="interrupted")

    def _require_turn(self) -> None:
        most = min((n for n in (self._limits.max_turns, self._context.max_turns) if n is not None), default=None)
        if most is not None and self._turns >= most:
            self.exceeded_limit = True
            raise ApiError(400, f"this session has used all of its {most} turns", code="turn_limit")

    async def _encode(self, text: str) -> list[int]:
        """Token ids of a text. Refuses a text whose size in bytes exceeds the context, to save memory and time."""
        context, tokenizer = self._context.max_context, self._context.tokenizer
        if context is not None and isinstance(tokenizer, HfTokenizer):
            most = context * tokenizer.longest_token
            if len(text) > most or (4 * len(text) > most and len(text.encode(errors="replace")) > most):
                self._refuse(
                    f"prompt is too long: {len(text):,} characters exceed this model's maximum context length of "
                    f"{context} tokens"
                )
        if len(text) > LONG_TEXT:
            return await asyncio.to_thread(self._context.tokenizer.encode, text)
        return self._context.tokenizer.encode(text)

    def _texts(self, tokens: Sequence[int]) -> list[str]:
        return [self._context.tokenizer.decode([token], skip_special_tokens=False) for token in tokens]


class _ReplyStream:
    """An answer as it arrives; its deltas, joined, equal the final message."""

    def __init__(self, reading: AnswerReader, stops: Stops, listener: Listener | None) -> None:
        self.stops = stops
        self._reading, self._listener = reading, listener
        self._said = 0

    def chunk(self, chunk: GenerateChunk) -> None:
        self.tokens(chunk.tokens)

    def tokens(self, tokens: Sequence[int]) -> None:
        self._forward(self._reading.feed(tokens))

    def end(self, output: GenerateOutput) -> Message:
        self._forward(self._reading.end())
        rest = self.stops.end()
        if self._listener is not None:
            for delta in rest:
                self._listener.add(delta)
        message = self._reading.message
        return replace(message, text=self.stops.text, stop=self.stops.matched or "") if self.stops.wanted else message

    def _forward(self, deltas: Sequence[Delta]) -> None:
        for delta in self.stops.filter_deltas(deltas) if self.stops.wanted else deltas:
            if self._listener is not None:
                self._listener.add(delta)


def _first_prompt(plan: Plan, prompt: Sequence[int]) -> int:
    path = plan.anchor.path if plan.anchor is not None else []
    first = next((place for place, node in enumerate(path) if node.output is not None), None)
    return len(prompt) if first is None else sum(len(node.ids) for node in path[:first])


def _finish(message: Message, output: GenerateOutput) -> Finish:
    if output.finish is FinishReason.LENGTH:
        return Finish.LENGTH
    return Finish.CALLS if message.calls else Finish.STOP
