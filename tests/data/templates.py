"""Chat templates that repeat one construction each of public models' templates."""

from pathlib import Path

import tokenizers

from slime_core.data import ChatTemplate, HfTokenizer

OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
TURN = "<|im_start|>{{ m.role }}\n"
CHATML = "{% for m in messages %}" + TURN + "{{ m.content }}<|im_end|>\n{% endfor %}" + OPEN
CALLS = (
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} {{ c.function.arguments | tojson }}</tool_call>"
    "{% endfor %}"
)
QWEN3 = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
    "{% endif %}{% endfor %}{% for m in messages %}{% if m.role == 'assistant' %}"
    "{% set thought = m.reasoning_content or '' %}{% set said = m.content %}"
    "{% if '</think>' in said %}{% set thought = said.split('</think>')[0].split('<think>')[-1].strip() %}"
    "{% set said = said.split('</think>')[-1].lstrip('\\n') %}{% endif %}" + TURN + "{% if loop.index0 > ns.last %}"
    "<think>\n{{ thought }}\n</think>\n\n{% endif %}{{ said }}" + CALLS + "<|im_end|>\n"
    "{% elif m.role == 'tool' %}<|im_start|>user\n<tool_response>{{ m.content }}</tool_response><|im_end|>\n"
    "{% else %}" + TURN + "{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}" + OPEN
)
"""Reasoning only after the last question; a tool's result is the user's."""
QWEN3_THINKING = QWEN3.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
"""The same, the prompt opens the reasoning."""
DEEPSEEK = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<|im_start|>assistant\n{{ m.content.split('</think>')[-1] }}"
    "{% for c in m.tool_calls or [] %}{{ '<call>' + c.function.name + '\n' + c.function.arguments + '</call>' }}"
    "{% endfor %}<|im_end|>{% else %}" + TURN + "{{ m.content }}{% endif %}{% endfor %}" + OPEN
)
"""No reasoning at all; arguments of calls are joined as text."""
NEMOTRON = (
    "{% for m in messages %}{% if m.role == 'assistant' %}{% set said = m.content %}"
    "{% if '</think>' not in said %}{% set said = '<think></think>' ~ said %}"
    "{% elif not loop.last %}{% set said = '<think></think>' ~ said.split('</think>')[-1] %}{% endif %}"
    + TURN
    + "{{ said }}<|im_end|>\n{% else %}"
    + TURN
    + "{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    + OPEN.replace("assistant\n", "assistant\n<think>\n")
)
"""Empty reasoning stays in earlier turns; the prompt opens it with a line break."""
PHI3 = CHATML.replace("{% if add", "{% if not add_generation_prompt %}<|endoftext|>{% endif %}{% if add")
"""The end of the text after the whole dialog."""
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content | trim }} <|im_end|>{% endif %}{% endfor %}"
)
"""The end of the user's turn opens the assistant's."""
MISTRAL = (
    "{% for m in messages %}{% if m.role == 'user' %}[INST] {% if loop.index >= messages | length - 1 and "
    "messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}{{ m.content }}[/INST]"
    "{% elif m.role == 'assistant' %} {{ m.content }}<|im_end|>{% endif %}{% endfor %}"
)
"""The system message before the last question."""
GEMMA = (
    "{% for m in messages %}{% if m.role != 'tool' %}{% if not (loop.previtem and loop.previtem.role == 'tool') %}"
    + TURN
    + "{% endif %}{% for c in m.tool_calls or [] %}call:{{ c.function.name }}"
    "{% for k, v in c.function.arguments | dictsort %},{{ k }}:{{ v }}{% endfor %};{% endfor %}"
    "{% if m.tool_calls and loop.nextitem %}[{{ loop.nextitem.content }}]"
    "{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endif %}{% endfor %}" + OPEN
)
"""Arguments in the order of their names; a tool's result and the next answer in the turn of the call."""
PARTS = (
    "{% for m in messages %}" + TURN + "{% for p in m.content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}"
    "{% endfor %}<|im_end|>\n{% endfor %}" + OPEN
)
"""Nothing but parts is read, as by SmolVLM's."""
LLAMA31 = (
    "{% for m in messages %}"
    + TURN
    + "{% if m.role == 'tool' %}{{ m.content | tojson }}{% else %}{{ m.content | trim }}"
    "{% endif %}" + CALLS + "<|im_end|>\n{% endfor %}" + OPEN
)
"""Results of tools as JSON; everything else trimmed."""


def with_template(tokenizer: HfTokenizer, template: str) -> HfTokenizer:
    """The same tokenizer with another chat template."""
    backend = tokenizers.Tokenizer.from_file(str(Path(str(tokenizer)) / "tokenizer.json"))
    return HfTokenizer(backend, tokenizer.eos_token_ids, ChatTemplate({"default": template}, {}, "m"), "m")
