"""Kimi: calls in a section, each named by an id such as `functions.add:0`.

The id stays the call's: the chat template writes it again before the tool's answer.

Example:

    <|tool_calls_section_begin|><|tool_call_begin|>functions.add:0<|tool_call_argument_begin|>{"a": 1}<|tool_call_end|>
    <|tool_calls_section_end|>
"""

import re

from slime_agent_openai.parsers.answer import THINK, Form
from slime_agent_openai.parsers.family import Family
from slime_agent_openai.parsers.section import Marks

_WHOLE_ID = re.compile(r"functions\.[^\s:]+:\d+")
_ID = re.compile(r"\s*(?:functions\.)?(.+?)(?::\d+)?\s*")


def _name(head: str, body: str) -> str:
    found = _ID.fullmatch(head)
    return found[1] if found and not body.strip() else ""


def _call_id(head: str) -> str:
    """The id as templates write it; one of another form is none."""
    return head.strip() if _WHOLE_ID.fullmatch(head.strip()) else ""


MARKS = Marks(
    opens="<|tool_calls_section_begin|>",
    call="<|tool_call_begin|>",
    parts="<|tool_call_argument_begin|>",
    ends="<|tool_call_end|>",
    closes="<|tool_calls_section_end|>",
    name=_name,
    call_id=_call_id,
)
FAMILY = Family(
    "kimi-k2",
    MARKS.all | set(THINK),
    Form({MARKS.opens: MARKS.reader}).parser,
    "calls after <|tool_calls_section_begin|>: Kimi K2",
)
