"""Fuzz target: any text as a chat template, over any messages, ends in a text or in an error that names the model."""

from unittest.mock import patch

from hypothesis import strategies as st

from slime_core.data import ChatTemplate, chat_template
from slime_core.errors import ConfigError, DataError, ModelError
from slime_core.sample import Json

LIMIT_S = 1.0
LONGEST_ERROR = 3_000
PARTS = """\
{% for m in messages %}
{% endfor %}
{% if m.role == 'user' %}
{% else %}
{% endif %}
{{ m.content }}
{{ f(f) }}
{{ m['role'] | upper }}
{% macro f(x) %}
{% endmacro %}
{{ f(1) }}
{% set n = namespace(x='a') %}
{% set n.x = n.x + n.x %}
{% for i in range(99999) %}
{{ messages | tojson(indent=i) }}
{{ n.x | center(i * i) }}
{{ [messages] * 99 }}
{{ tools | random }}
{{ strftime_now('%Y') }}
{% generation %}
{% endgeneration %}
{#
#}
-%}
{{ raise_exception(m) }}
{% break %}
{{ bos_token
 ~ a }}
{{ messages[0].__class__ }}
{% raw %}
{% endraw %}
{% call f(2) %}
{% endcall %}
{% filter upper %}
{% endfilter %}
""".splitlines()
TEMPLATES = st.lists(st.sampled_from(PARTS) | st.text(max_size=8), max_size=12).map("".join)
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": VALUES}),
    max_size=3,
)


def fuzz(data: st.DataObject) -> None:
    """Render a made template twice: both times the same, or an error of a kind that callers expect."""
    text, messages, tools = data.draw(TEMPLATES), data.draw(MESSAGES), data.draw(VALUES)
    kwargs = data.draw(st.dictionaries(st.sampled_from(["messages", "a", "n", "bos_token"]), VALUES, max_size=2))
    texts = set[str]()
    template = ChatTemplate({"default": text}, {"bos_token": "<s>"}, "the-model")
    with patch.object(chat_template, "LIMIT_S", LIMIT_S):
        problems = list[str]()
        for step in (
            lambda: template.check_kwargs(kwargs),
            lambda: texts.update(template.render(messages, tools, kwargs) for _ in range(2)),
        ):
            try:
                step()
            except (ConfigError, DataError, ModelError) as error:
                problems.append(str(error))
    assert len(texts) < 2
    assert all("the-model" in each or "plain JSON" in each for each in problems), problems
    assert all(len(each) < LONGEST_ERROR for each in problems), problems
