"""ChatTemplate: chat messages to prompt text, by the model's own Jinja template, in a sandbox.

The text depends on the messages alone: templates are given no clock, so a run makes the same prompts on any day
(pass `date_string` in `apply_chat_template_kwargs` where a template asks for a date).
"""

from collections.abc import Mapping, Sequence

from slime_core.errors import DataError, ModelError
from slime_core.sample import Json, Message


class ChatTemplate:
    """A model's chat templates by name: "default", and maybe "tool_use" for prompts with tools."""

    def __init__(self, sources: Mapping[str, str], special_tokens: Mapping[str, str], owner: str) -> None:
        """Compile the templates.

        Args:
            sources: Jinja text of each template.
            special_tokens: variables such as `bos_token`.
            owner: the model directory, for error texts.

        Raises:
            ModelError: a template is not valid Jinja.
        """
        from jinja2 import TemplateSyntaxError

        from slime_core.data._template_dialect import Dialect

        self._dialect = Dialect()
        self._special_tokens = dict(special_tokens)
        self._owner = owner
        try:
            self._templates = {name: self._dialect.from_string(text) for name, text in sources.items()}
        except TemplateSyntaxError as error:
            raise ModelError(
                f"the chat template of {owner} is broken in line {error.lineno}: {error.message}"
            ) from None
        except RecursionError:
            raise ModelError(f"the chat template of {owner} is nested too deeply") from None

    def render(self, messages: Sequence[Message], tools: Json = None, kwargs: Mapping[str, Json] | None = None) -> str:
        """The messages as prompt text; the generation prompt is added unless `kwargs` say otherwise.

        Raises:
            DataError: the template refuses the messages, fails with them, takes too long or makes too much of them.
        """
        from jinja2 import TemplateError

        template = self._templates["default"]
        if tools is not None:
            template = self._templates.get("tool_use", template)
        variables = {**self._special_tokens, "add_generation_prompt": True, **(kwargs or {})}
        try:
            return self._dialect.text_of(template.generate(messages=messages, tools=tools, documents=None, **variables))
        except TemplateError as error:
            raise DataError(f"the chat template of {self._owner} refuses the messages: {error}") from None
        except Exception as error:  # what a template does with these messages is anybody's guess
            problem = f"{type(error).__name__}: {error}".rstrip(": ")
            raise DataError(f"the chat template of {self._owner} fails with the messages: {problem}") from None
