r"""Draft: the message of one answer while it is read, as the deltas that tell it.

Whitespace is dropped where templates put it: around the reasoning, newlines between it and the text, and around calls.
All of the rest is kept.

Example:

    draft = Draft(new_id)
    draft.text("Let me see.\n")
    draft.begin("add"); draft.arguments('{"a": 1}'); draft.end()
    draft.take()                     # TextDelta("Let me see."), CallBegun(0, ..., "add"), ArgumentsDelta(0, '{"a": 1}')
"""

import json

from slime_agent_openai.reply import ArgumentsDelta, CallBegun, Delta, ReasoningDelta, TextDelta
from slime_agent_openai.wires.wire import NewId


class Draft:
    """Collects what parsers read."""

    def __init__(self, new_id: NewId) -> None:
        """Nothing is said."""
        self.malformed = 0
        self._new_id = new_id
        self._deltas: list[Delta] = []
        self._thought = self._said = False
        self._held_thought = self._held = ""
        self._skip_newlines = self._skip_space = False
        self._calls = 0
        self._ids: set[str] = set()
        self._arguments: list[str] = []

    @property
    def silent(self) -> bool:
        """Whether nothing is said yet and no tool called."""
        return not (self._said or self._calls)

    @property
    def thought(self) -> bool:
        """Whether there is reasoning."""
        return self._thought

    def take(self) -> list[Delta]:
        """The deltas since the last time."""
        taken, self._deltas = self._deltas, []
        return taken

    def reason(self, text: str) -> None:
        """More reasoning."""
        whole = self._held_thought + text if self._thought else text.lstrip()
        known = whole.rstrip()
        self._held_thought = whole[len(known) :] if known or self._thought else ""
        if known:
            self._thought = True
            self._deltas.append(ReasoningDelta(known))

    def reasoned(self) -> None:
        """The reasoning is over; what was before it, and newlines after it, are not text."""
        self._held_thought = self._held = ""
        self._skip_newlines = True

    def text(self, text: str) -> None:
        """More text."""
        if self._skip_space:
            text = text.lstrip()
        elif self._skip_newlines:
            text = text.lstrip("\n")
        if not text:
            return
        self._skip_newlines = self._skip_space = False
        whole = self._held + text
        known = whole.rstrip()
        self._held = whole[len(known) :]
        if known:
            self._said = True
            self._deltas.append(TextDelta(known))

    def back(self, text: str) -> None:
        """What looked like a call is none: it is text, and counted."""
        self.malformed += 1
        self.text(text)

    def begin(self, name: str, written: str = "") -> None:
        """A call; `arguments` and `end` follow. `written` is the id that the model gave it, if it gave one."""
        if not self._said:
            self._held = ""
        self._skip_space = True  # what is held comes between the texts if more text follows the call
        call = written if written and written not in self._ids else self._new_id("call")
        self._deltas.append(CallBegun(self._calls, call, name))
        self._ids.add(call)
        self._calls += 1
        self._arguments = []

    def arguments(self, text: str) -> None:
        """More of the call's arguments."""
        if text:
            self._arguments.append(text)
            self._deltas.append(ArgumentsDelta(self._calls - 1, text))

    def end(self, *, whole: bool = True) -> None:
        """The call is over; one that is not whole, or whose arguments are not a JSON object, is malformed."""
        if not (whole and _is_object("".join(self._arguments))):
            self.malformed += 1

    def finish(self) -> None:
        """The answer is over."""
        if self._held and not self._skip_space:
            self._deltas.append(TextDelta(self._held))
        self._held = ""


def can_name(name: object) -> bool:
    """Whether this may be the name of a tool."""
    return isinstance(name, str) and bool(name) and name.isprintable() and " " not in name


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False
