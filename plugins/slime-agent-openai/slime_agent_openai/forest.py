"""Forest: what happened in one session, as trees of messages, each with the tokens that it added.

A reply of the model is a node with the ids, log-probs and versions that the engine gave. Its prompt is the ids of all
nodes above it: so the next turn goes on from exactly what the engine saw (token-in, token-out), whatever the client
sends back, as long as it means the same. What a client edited is another branch, on which nobody is trained.

Example:

    plan = forest.plan(request)                    # where it goes on, and what is to be encoded
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
from slime_agent_openai.errors import ApiError, refused
from slime_agent_openai.message import Message, Request, Role, Tool
from slime_core.errors import DataError
from slime_core.roles import GenerateOutput

LOST = {"thread.previous_message_id": "thread_not_found"}
"""By the field that names a reply that is not there: what tells clients to send the whole history instead."""


@dataclass(eq=False, slots=True)
class Node:
    """One message, and what it added."""

    parent: "Node | None"  # What came before; None: it begins a conversation
    message: Message  # What it says
    ids: list[int]  # Tokens that it added
    tools: tuple[Tool, ...]  # What was offered
    agent: str  # Who asked
    template: str = ""  # What the chat template was given beside the run's arguments
    output: GenerateOutput | None = None  # What the engine gave, if the model said it
    hashed: blake2b | None = None
    """State of the hash of all tokens up to its end, if the model said it: a prompt that goes on hashes what is new."""
    children: list["Node"] = field(default_factory=list)  # What came after
    asked: int = 0  # When the model was asked for it, by the forest's clock, which counts requests and replies
    made: int = 0  # When that was there

    @property
    def path(self) -> list["Node"]:
        nodes = [self]
        while (above := nodes[-1].parent) is not None:
            nodes.append(above)
        return nodes[::-1]


@dataclass(frozen=True, slots=True)
class Plan:
    """Where a request goes on."""

    anchor: Node | None  # The reply that it follows; None: it begins anew
    tail: tuple[Message, ...]  # Messages since
    tools: tuple[Tool, ...]  # What is offered
    agent: str  # Who asks
    asked: int  # When the request came, by the forest's clock
    text: str  # What is to be encoded of it
    template: str = ""  # What the chat template is given beside the run's arguments


@dataclass(slots=True)
class Counts:
    """What a session came to."""

    turns: int = 0  # Replies of the model
    bridged: int = 0  # Those that went on from exactly what was there
    forks: int = 0  # Those whose history was written anew, or edited, though the model had spoken in it
    generated: int = 0  # Tokens of the model


class Forest:
    """The conversations of one session."""

    def __init__(self, bridge: Bridge, *, keeps_template: bool = False) -> None:
        self.counts = Counts()  # What it came to
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
        anchor, tail, tools = self._found(request)
        bridge = self._bridge.under(request.template)
        try:
            if anchor is not None and tail and not self._is_asked_anew(anchor, tail):
                text = bridge.suffix(anchor.message, tail, tools)
                if text is not None:
                    return Plan(anchor, tail, tools, request.agent, asked, text, request.template)
            messages = (*_before(anchor, request), *tail)
            text = bridge.whole(messages, tools)
            return Plan(None, messages, tools, request.agent, asked, text, request.template)
        except DataError as error:
            raise refused(str(error), "messages") from None

    def prompt(self, plan: Plan, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """The whole prompt, and what of it is new, given the ids of the plan's text."""
        if plan.anchor is None:
            return list(ids), list(ids)
        new = without_overlap(plan.anchor.ids, ids)
        return [*chain.from_iterable(node.ids for node in plan.anchor.path), *new], new

    def hashed(self, plan: Plan, new: Sequence[int]) -> blake2b:
        """State of the hash of a whole prompt's tokens, given what of it is new."""
        before = plan.anchor.hashed if plan.anchor is not None else None
        return _more(before.copy() if before is not None else blake2b(digest_size=8), new)

    def commit(self, plan: Plan, new: Sequence[int], message: Message, output: GenerateOutput) -> Node:
        """Note a reply; `new` is what its prompt added."""
        self.counts.turns += 1
        self.counts.bridged += plan.anchor is not None
        self.counts.forks += self._is_fork(plan)
        self.counts.generated += len(output.tokens)
        parent = plan.anchor
        for place, said in enumerate(plan.tail, 1):
            parent = self._asked(plan, parent, said, list(new) if place == len(plan.tail) else [])
        ids = list(output.tokens)
        hashed = _more(self.hashed(plan, new), ids)
        node = Node(parent, message, ids, plan.tools, plan.agent, plan.template, output, hashed)
        node.asked, node.made = plan.asked, next(self._clock)
        self._below(parent).append(node)
        self._answered.add(plan.agent)
        return node

    def name(self, node: Node, ids: Sequence[str]) -> None:
        """Make a reply known by its ids on the wire, for requests that go on from them."""
        self._known |= dict.fromkeys(ids, node)

    def leaves(self) -> Iterator[Node]:
        stack = self._roots[::-1]
        while stack:
            node = stack.pop()
            if not node.children:
                yield node
            stack += node.children[::-1]

    def chains(self) -> Iterator[list[tuple[Node, bool]]]:
        """Each conversation from its beginning to its end; a node with whether this is the chain it is trained in.

        They come in the order of their tokens: which of several requests of one time ended first is chance, and a run
        is to be the same all the same.
        """
        trained: set[Node] = set()
        for path in sorted((leaf.path for leaf in self.leaves()), key=_order):
            yield [(node, node.output is not None and node not in trained) for node in path]
            trained.update(path)

    def _found(self, request: Request) -> tuple[Node | None, tuple[Message, ...], tuple[Tool, ...]]:
        if request.after:
            return self._after(request)
        tools = self._tools.setdefault(request.tools, request.tools)
        # A message may stand in several branches: what begins with an edited history has all before the edit once more.
        ways: list[tuple[int, Node | None]] = [(0, None)]
        anchor, depth = None, 0
        for place, message in enumerate(request.messages, 1):
            ways = [
                (likeness + _likeness(each, message), each)
                for likeness, node in ways
                for each in self._below(node)
                if each.tools is tools and _is_same_way(each, request) and each.message.means(message)
            ]
            if not ways:
                break
            said = [way for way in reversed(ways) if way[1] is not None and way[1].output is not None]
            if said:
                (_, anchor), depth = max(said, key=itemgetter(0)), place  # the last of those that are most alike
        return anchor, request.messages[depth:], tools

    def _after(self, request: Request) -> tuple[Node | None, tuple[Message, ...], tuple[Tool, ...]]:
        """The same of a request that names the reply; instructions are said again each time, and may be others."""
        anchor = self._known.get(request.after)
        if anchor is None:
            text = f"no reply of this session has the id {request.after!r}"
            code = LOST.get(request.after_field, "previous_response_not_found")
            raise ApiError(404, text, code=code, param=request.after_field)
        tools = self._tools.setdefault(request.tools, request.tools) if request.tools else anchor.tools
        messages, path = request.messages, anchor.path
        begins = path[0].message
        if request.instructions and (begins.role is not Role.SYSTEM or begins.text != request.instructions):
            said = [node.message for node in path[begins.role is Role.SYSTEM :]]
            return None, (Message(Role.SYSTEM, request.instructions), *said, *messages), tools
        if tools is not anchor.tools or request.template != anchor.template:  # it may be written from the beginning on
            return None, (*(node.message for node in path), *messages), tools
        return anchor, messages, tools

    def _is_asked_anew(self, anchor: Node, tail: Sequence[Message]) -> bool:
        """Whether the template would drop reasoning that the model was shown, and is to."""
        asks = any(message.role is Role.USER for message in tail)
        return self._keeps_template and asks and any(node.message.reasoning for node in anchor.path)

    def _is_fork(self, plan: Plan) -> bool:
        """Whether a history has the model's words anew; before it spoke, they are a client's own examples."""
        return plan.agent in self._answered and any(message.role is Role.ASSISTANT for message in plan.tail)

    def _asked(self, plan: Plan, parent: Node | None, said: Message, ids: list[int]) -> Node:
        """The node of a message that somebody else wrote: of two branches from it there is one."""
        below = self._below(parent)
        for node in below:
            is_theirs = node.output is None and node.tools is plan.tools and _is_same_way(node, plan)
            if is_theirs and node.ids == ids and node.message == said:
                return node
        node = Node(parent, said, ids, plan.tools, plan.agent, plan.template)
        below.append(node)
        return node

    def _below(self, node: Node | None) -> list[Node]:
        return self._roots if node is None else node.children


def _is_same_way(node: Node, asked: Request | Plan) -> bool:
    return node.agent == asked.agent and node.template == asked.template


def _before(anchor: Node | None, request: Request) -> tuple[Message, ...]:
    """A history up to its last reply, to be written anew: the model's words, and of an echo what stopped them."""
    said = [node.message for node in anchor.path] if anchor is not None else []
    if request.after:
        return tuple(said)
    return tuple(ours.as_echoed(echo) for ours, echo in zip(said, request.messages, strict=False))


def _order(path: Sequence[Node]) -> tuple[list[list[int]], str]:
    return [node.ids for node in path], path[-1].agent


def _more(state: blake2b, ids: Sequence[int]) -> blake2b:
    state.update(array("q", ids))
    return state


def _likeness(node: Node, message: Message) -> int:
    """The model's own words before what somebody wrote; of those that say the same, those whose calls have these ids.

    Of several that are left the last one counts: clients go on from that.
    """
    ours, theirs = node.message.calls, message.calls
    same = ours == theirs or [call.id for call in ours] == [call.id for call in theirs]
    return (node.output is not None) + same
