"""Forest: the messages of one session as trees; each node holds the tokens that its message added.

A reply's node has the ids, log-probs and versions that the engine returned. A reply's prompt is the ids of all nodes
above it, so the next turn continues exactly what the engine saw (token-in, token-out). This holds even if the client
writes an equal history differently. An edited history becomes another branch, which is not trained on.

Example:

    plan = forest.plan(request)                    # where the request continues, and the text to encode
    prompt = forest.prompt(plan, ids)
    node = forest.commit(plan, ids, message, output)
    for chain in forest.chains(): ...              # each becomes a sample
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain, count
from operator import itemgetter

from slime_agent_openai.bridge import Bridge, without_overlap
from slime_agent_openai.errors import ApiError, bad_request
from slime_agent_openai.message import Message, Request, Role, Tool
from slime_core.errors import DataError
from slime_core.roles import GenerateOutput

NOT_FOUND_CODES = {"thread.previous_message_id": "thread_not_found"}
"""Error code by the field that names a missing reply; the code makes clients send the whole history instead."""


@dataclass(eq=False, slots=True)
class Node:
    """One message and the tokens that it added."""

    parent: "Node | None"  # The message before it; None: it begins a conversation
    message: Message  # The message
    ids: list[int]  # Tokens that it added
    tools: tuple[Tool, ...]  # Tools offered
    agent: str  # Name of the agent that asked
    template: str = ""  # Arguments of the chat template in addition to the run's own
    output: GenerateOutput | None = None  # The engine's output, if the model wrote the message
    hashed: blake2b | None = None
    """Hash state of all tokens up to its end, if the model wrote it; a longer prompt hashes only its new tokens."""
    children: list["Node"] = field(default_factory=list)  # Messages that follow
    asked: int = 0  # When its request came, by the forest's clock, which counts requests and replies
    made: int = 0  # When the reply was complete, by the same clock

    @property
    def path(self) -> list["Node"]:
        nodes = [self]
        while (above := nodes[-1].parent) is not None:
            nodes.append(above)
        return nodes[::-1]


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a request continues, and what it adds."""

    anchor: Node | None  # The reply that it follows; None: it starts a new tree
    tail: tuple[Message, ...]  # Messages after that reply
    tools: tuple[Tool, ...]  # Tools offered
    agent: str  # Name of the agent that asks
    asked: int  # When the request came, by the forest's clock
    text: str  # Its text to encode
    template: str = ""  # Arguments of the chat template in addition to the run's own


@dataclass(slots=True)
class Counts:
    """Totals of a session."""

    turns: int = 0  # Replies of the model
    bridged: int = 0  # Replies whose prompt continued exactly the tokens before
    forks: int = 0  # Replies whose history was rendered again or edited, although the model had written part of it
    generated: int = 0  # Tokens that the model generated


class Forest:
    """The conversations of one session."""

    def __init__(self, bridge: Bridge, *, keeps_template: bool = False) -> None:
        self.counts = Counts()  # Totals so far
        self._bridge, self._keeps_template = bridge, keeps_template
        self._roots: list[Node] = []
        self._clock = count(1)
        self._known: dict[str, Node] = {}
        self._answered: set[str] = set()
        self._tools: dict[tuple[Tool, ...], tuple[Tool, ...]] = {(): ()}

    def plan(self, request: Request) -> Plan:
        asked = next(self._clock)
        if request.raw:
            return Plan(None, (Message(Role.USER, request.raw),), (), request.agent, asked, request.raw)
        anchor, tail, tools = self._find(request)
        bridge = self._bridge.with_arguments(request.template)
        try:
            if anchor is not None and tail and not self._drops_reasoning(anchor, tail):
                text = bridge.suffix(anchor.message, tail, tools)
                if text is not None:
                    return Plan(anchor, tail, tools, request.agent, asked, text, request.template)
            messages = (*_before(anchor, request), *tail)
            text = bridge.whole(messages, tools)
            return Plan(None, messages, tools, request.agent, asked, text, request.template)
        except DataError as error:
            raise bad_request(str(error), "messages") from None

    def prompt(self, plan: Plan, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """The whole prompt and its new part, given the ids of the plan's text."""
        if plan.anchor is None:
            return list(ids), list(ids)
        new = without_overlap(plan.anchor.ids, ids)
        return [*chain.from_iterable(node.ids for node in plan.anchor.path), *new], new

    def hashed(self, plan: Plan, new: Sequence[int]) -> blake2b:
        """Hash state of a whole prompt's tokens, given the new part."""
        before = plan.anchor.hashed if plan.anchor is not None else None
        return _more(before.copy() if before is not None else blake2b(digest_size=8), new)

    def commit(self, plan: Plan, new: Sequence[int], message: Message, output: GenerateOutput) -> Node:
        """Store a reply; `new` holds the tokens that its prompt added."""
        self.counts.turns += 1
        self.counts.bridged += plan.anchor is not None
        self.counts.forks += self._is_fork(plan)
        self.counts.generated += len(output.tokens)
        parent = plan.anchor
        for place, tail_message in enumerate(plan.tail, 1):
            parent = self._context_node(plan, parent, tail_message, list(new) if place == len(plan.tail) else [])
        ids = list(output.tokens)
        hashed = _more(self.hashed(plan, new), ids)
        node = Node(parent, message, ids, plan.tools, plan.agent, plan.template, output, hashed)
        node.asked, node.made = plan.asked, next(self._clock)
        self._children(parent).append(node)
        self._answered.add(plan.agent)
        return node

    def name(self, node: Node, ids: Sequence[str]) -> None:
        """Store a reply's ids on the wire, for requests that refer to them."""
        self._known |= dict.fromkeys(ids, node)

    def leaves(self) -> Iterator[Node]:
        stack = self._roots[::-1]
        while stack:
            node = stack.pop()
            if not node.children:
                yield node
            stack += node.children[::-1]

    def chains(self) -> Iterator[list[tuple[Node, bool]]]:
        """Each conversation from beginning to end; each node with whether this is the chain that trains on it.

        Chains are sorted by their tokens: the order in which simultaneous requests end is random, and a run must be
        reproducible.
        """
        trained: set[Node] = set()
        for path in sorted((leaf.path for leaf in self.leaves()), key=_order):
            yield [(node, node.output is not None and node not in trained) for node in path]
            trained.update(path)

    def _find(self, request: Request) -> tuple[Node | None, tuple[Message, ...], tuple[Tool, ...]]:
        if request.after:
            return self._after(request)
        tools = self._tools.setdefault(request.tools, request.tools)
        # A message may be in several branches: a branch with an edited history repeats all messages before the edit.
        candidates: list[tuple[int, Node | None]] = [(0, None)]
        anchor, depth = None, 0
        for place, message in enumerate(request.messages, 1):
            candidates = [
                (similarity + _similarity(each, message), each)
                for similarity, node in candidates
                for each in self._children(node)
                if each.tools is tools and _is_same_context(each, request) and each.message.matches(message)
            ]
            if not candidates:
                break
            replies = [pair for pair in reversed(candidates) if pair[1] is not None and pair[1].output is not None]
            if replies:
                (_, anchor), depth = max(replies, key=itemgetter(0)), place  # the last of the most similar
        return anchor, request.messages[depth:], tools

    def _after(self, request: Request) -> tuple[Node | None, tuple[Message, ...], tuple[Tool, ...]]:
        """Where a request continues that names its reply. New instructions replace the system message."""
        anchor = self._known.get(request.after)
        if anchor is None:
            text = f"no reply of this session has the id {request.after!r}"
            code = NOT_FOUND_CODES.get(request.after_field, "previous_response_not_found")
            raise ApiError(404, text, code=code, param=request.after_field)
        tools = self._tools.setdefault(request.tools, request.tools) if request.tools else anchor.tools
        messages, path = request.messages, anchor.path
        first = path[0].message
        if request.instructions and (first.role is not Role.SYSTEM or first.text != request.instructions):
            history = [node.message for node in path[first.role is Role.SYSTEM :]]
            return None, (Message(Role.SYSTEM, request.instructions), *history, *messages), tools
        if tools is not anchor.tools or request.template != anchor.template:  # both may change the prompt's beginning
            return None, (*(node.message for node in path), *messages), tools
        return anchor, messages, tools

    def _drops_reasoning(self, anchor: Node, tail: Sequence[Message]) -> bool:
        """Whether the template drops earlier reasoning because a user message follows it."""
        asks = any(message.role is Role.USER for message in tail)
        return self._keeps_template and asks and any(node.message.reasoning for node in anchor.path)

    def _is_fork(self, plan: Plan) -> bool:
        """Whether the history repeats text of the model as new text. A client's own examples do not count."""
        return plan.agent in self._answered and any(message.role is Role.ASSISTANT for message in plan.tail)

    def _context_node(self, plan: Plan, parent: Node | None, message: Message, ids: list[int]) -> Node:
        """The node of a message that the model did not write; two branches that begin with it share the node."""
        below = self._children(parent)
        for node in below:
            may_share = node.output is None and node.tools is plan.tools and _is_same_context(node, plan)
            if may_share and node.ids == ids and node.message == message:
                return node
        node = Node(parent, message, ids, plan.tools, plan.agent, plan.template)
        below.append(node)
        return node

    def _children(self, node: Node | None) -> list[Node]:
        return self._roots if node is None else node.children


def _is_same_context(node: Node, request: Request | Plan) -> bool:
    return node.agent == request.agent and node.template == request.template


def _before(anchor: Node | None, request: Request) -> tuple[Message, ...]:
    """The history up to its last reply, for rendering: the model's own text, with its stop text if the echo has it."""
    history = [node.message for node in anchor.path] if anchor is not None else []
    if request.after:
        return tuple(history)
    return tuple(own.as_echoed(echo) for own, echo in zip(history, request.messages, strict=False))


def _order(path: Sequence[Node]) -> tuple[list[list[int]], str]:
    return [node.ids for node in path], path[-1].agent


def _more(state: blake2b, ids: Sequence[int]) -> blake2b:
    state.update(array("q", ids))
    return state


def _similarity(node: Node, message: Message) -> int:
    """Similarity score: the model's own messages rank before others; equal ones rank by whether the call ids match.

    Of several with one score the caller takes the last, since clients continue that.
    """
    own, echoed = node.message.calls, message.calls
    same = own == echoed or [call.id for call in own] == [call.id for call in echoed]
    return (node.output is not None) + same
