"""Constraints: what would keep a reply to a form, such as a call that is forced or a JSON Schema, read from its fields.

Here the model says what it likes, and its log-probs are those of that. A session refuses constraints by name, or leaves
them aside and counts that; what the agent gets it checks itself, as it does where a provider only tries.

Example:

    choice_of(Value("required", "tool_choice"))      # (True, (Constraint("tool_choice", ...),))
"""

from collections.abc import Iterable, Mapping

from slime_agent_openai.message import Tool
from slime_agent_openai.request import Constraint
from slime_agent_openai.wires.reading import Value

UNFORCED = 'what the model calls is its own choice; send "auto" or "none"'
TEXT_ONLY = "the model's answers are text that is not constrained; check them in the agent"
OPENAI_CHOICES = {"auto": True, "none": False, "required": None}
ANTHROPIC_CHOICES = {"auto": True, "none": False, "any": None, "tool": None}
"""By name: whether the model may call tools; None: it has to."""
FORMS = (
    *("ebnf", "grammar", "guided_choice", "guided_grammar", "guided_json", "guided_json_object", "guided_regex"),
    *("json_schema", "regex", "structural_tag", "structured_outputs"),
)
"""Fields by which vLLM, SGLang and llama.cpp keep a reply to a form, in all protocols."""


def choice_of(choice: Value) -> tuple[bool, tuple[Constraint, ...]]:
    """Whether the model may call tools, and whether it is kept to that, from OpenAI's `tool_choice`.

    Raises:
        ApiError: it is none.
    """
    if isinstance(choice.json, dict):  # one tool by its name, or some of those that are offered
        choice.at("type").text()
        return True, (Constraint(choice.path, UNFORCED),)
    return _chosen(choice, choice, OPENAI_CHOICES)


def typed_choice_of(choice: Value) -> tuple[bool, tuple[Constraint, ...]]:
    """The same from Anthropic's, which is an object.

    Raises:
        ApiError: it is none.
    """
    return _chosen(choice, choice.at("type") if choice.is_given else choice, ANTHROPIC_CHOICES)


def format_of(wanted: Value) -> tuple[Constraint, ...]:
    """Whether a reply is to be anything but text.

    Raises:
        ApiError: it is not a format.
    """
    if not wanted.is_given or wanted.at("type").text() == "text":
        return ()
    return (Constraint(wanted.path, TEXT_ONLY),)


def forms_of(asked: Value) -> tuple[Constraint, ...]:
    """What of a body would keep the reply to a form, in the words of engines."""
    return tuple(Constraint(at.path, TEXT_ONLY) for at in asked.given(FORMS) if at.json)


def has_call_rules(tools: Iterable[Tool], *, one_call: bool) -> bool:
    """Whether calls of tools that are offered are to be one at most, or to fit their schemas, which nothing sees to."""
    return any(one_call or tool.is_strict for tool in tools)


def _chosen(choice: Value, kind: Value, known: Mapping[str, bool | None]) -> tuple[bool, tuple[Constraint, ...]]:
    if (name := kind.text("auto")) not in known:
        raise kind.wrong(f"one of {', '.join(known)}")
    may = known[name]
    return may is not False, (Constraint(choice.path, UNFORCED),) if may is None else ()
