"""ChatTemplate: chat messages to prompt text, by the model's own Jinja template, in a sandbox.

The text depends on the messages alone: templates are given no clock, so a run makes the same prompts on any day
(pass `date_string` in `apply_chat_template_kwargs` where a template asks for a date).
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from slime_core.errors import DataError, ModelError
from slime_core.sample import Json, Message

if TYPE_CHECKING:
    from jinja2 import Environment


class ChatTemplate:
    """A model's chat templates by name: "default", and maybe "tool_use" for prompts with tools."""

    def __init__(self, sources: Mapping[str, str], special_tokens: Mapping[str, str], owner: str) -> None:
        """Compile the templates.

        Args:
            sources: Jinja text of each template.
            special_tokens: variables such as `bos_token`.
            owner: the model directory, for error texts.

        Raises:
            ModelError: a template is no valid Jinja.
        """
        from jinja2 import TemplateSyntaxError

        environment = _environment()
        self._special_tokens = dict(special_tokens)
        self._owner = owner
        try:
            self._templates = {name: environment.from_string(text) for name, text in sources.items()}
        except TemplateSyntaxError as error:
            raise ModelError(
                f"the chat template of {owner} is broken in line {error.lineno}: {error.message}"
            ) from None

    def render(self, messages: Sequence[Message], tools: Json = None, kwargs: Mapping[str, Json] | None = None) -> str:
        """The messages as prompt text, generation prompt added.

        Raises:
            DataError: the template refuses the messages.
        """
        from jinja2 import TemplateError

        template = self._templates["default"]
        if tools is not None:
            template = self._templates.get("tool_use", template)
        variables = {**self._special_tokens, "add_generation_prompt": True, **(kwargs or {})}
        try:
            return template.render(messages=messages, tools=tools, documents=None, **variables)
        except (TemplateError, TypeError, KeyError, ValueError, AttributeError) as error:
            raise DataError(f"the chat template of {self._owner} refuses the messages: {error}") from None


def _environment() -> "Environment":
    """The dialect in which HF templates are written: trimmed blocks, `tojson`, `raise_exception`, `generation`."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """`{% generation %}` marks the assistant's part for trainers; it prints its body."""

        tags = {"generation"}  # noqa: RUF012  # jinja2 declares it a plain set

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> NoReturn:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = refuse
    return environment


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as templates expect it: no HTML escapes, unlike Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
