"""Writes a tiny model that knows tools, dialogs to warm it up on, and questions: what the examples here train.

    python examples/agents/make_model.py runs/agents-base
    slime sft examples/agents/sft.toml

It is a Qwen3 of 0.4 M weights with 1,024 positions. In the dialogs a third of the questions are given to a calculator,
and the others are answered at once, often wrongly: what is left to learn is to ask the calculator.
"""

import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from slime_train import make_portable

SPECIAL = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
MARKERS = ["<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
TEMPLATE = """{% if tools %}<|im_start|>system
{% if messages[0].role == 'system' %}{{ messages[0].content }}
{% endif %}tools:{% for tool in tools %} {{ tool.function.name }}{% endfor %}<|im_end|>
{% elif messages[0].role == 'system' %}<|im_start|>system
{{ messages[0].content }}<|im_end|>
{% endif %}{% for m in messages %}{% if m.role == 'system' %}{% elif m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% elif m.role == 'assistant' %}<|im_start|>assistant
{{ m.content or '' }}{% for call in m.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
SCHEMA = {"type": "object", "properties": {"e": {"type": "string"}}, "required": ["e"]}
TOOLS: list[dict[Any, Any]] = [
    {"type": "function", "function": {"name": "calc", "description": "value of a sum", "parameters": SCHEMA}}
]
DIALOGS, QUESTIONS, HELD_OUT = 24_000, 4_096, 64
ASKS_FIRST = 0.35
"""Share of the dialogs that ask the calculator."""


def main(folder: Path) -> None:
    """Write all of it."""
    draw = random.Random(0)
    held_out = set(_sums(random.Random(1), HELD_OUT))
    dialogs = [_dialog(each, draw) for each in _sums(draw, DIALOGS) if each not in held_out]
    tokenizer = _tokenizer(dialogs)
    torch.manual_seed(0)
    _model(tokenizer).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    make_portable(folder)
    _write(folder / "sft.jsonl", ({"messages": messages, "tools": TOOLS} for messages in dialogs))
    train = [each for each in _sums(random.Random(2), QUESTIONS) if each not in held_out]
    for name, sums in (("train", train), ("eval", sorted(held_out))):
        _write(
            folder / f"{name}.jsonl", ({"question": f"What is {each}?", "answer": str(_total(each))} for each in sums)
        )
    print(f"wrote a model of {len(tokenizer)} tokens and {len(dialogs)} dialogs to {folder}")


def _sums(draw: random.Random, count: int) -> Iterator[str]:
    """Sums of three or four numbers, none below zero on the way."""
    for _ in range(count):
        total = draw.randint(1, 9)
        terms = str(total)
        for _ in range(draw.randint(2, 3)):
            number = draw.randint(1, 9)
            sign = "-" if number <= total and draw.random() < 0.5 else "+"
            total += number if sign == "+" else -number
            terms += f"{sign}{number}"
        yield terms


def _total(terms: str) -> int:
    return sum(map(int, re.findall(r"[+-]?\d+", terms)))


def _dialog(terms: str, draw: random.Random) -> list[dict[str, Any]]:
    total = _total(terms)
    asked: list[dict[str, Any]] = [
        {"role": "system", "content": "solve"},
        {"role": "user", "content": f"What is {terms}?"},
    ]
    if draw.random() < ASKS_FIRST:
        call = {"type": "function", "function": {"name": "calc", "arguments": {"e": terms}}}
        asked.append({"role": "assistant", "content": "", "tool_calls": [call]})
        asked.append({"role": "tool", "content": str(total)})
        return [*asked, {"role": "assistant", "content": f"\\boxed{{{total}}}"}]
    guess = max(0, total + draw.choice([-2, -1, 0, 0, 1, 2]))
    return [*asked, {"role": "assistant", "content": f"\\boxed{{{guess}}}"}]


def _tokenizer(dialogs: list[list[dict[str, Any]]]) -> PreTrainedTokenizerFast:
    """Byte-level BPE, digits single, words and the box one token each."""
    backend = Tokenizer(models.BPE())
    words = pre_tokenizers.Split(Regex(r"\d|\\boxed\{| ?[A-Za-z]+|\s|[^\w\s]"), "isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([words, byte_level])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=384,
        special_tokens=[*SPECIAL, *MARKERS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    template = _wrapped(backend)
    texts = (str(template.apply_chat_template(each, tools=list(TOOLS), tokenize=False)) for each in dialogs[:3000])
    backend.train_from_iterator(texts, trainer)
    return _wrapped(backend)


def _wrapped(backend: Tokenizer) -> PreTrainedTokenizerFast:
    """A copy of the backend, with the template."""
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, pad_token=SPECIAL[0], eos_token=SPECIAL[2], padding_side="left"
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _model(tokenizer: PreTrainedTokenizerFast) -> Qwen3ForCausalLM:
    """Two layers, width 128, tied embeddings."""
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=320,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        rope_parameters={"rope_theta": 500.0, "rope_type": "default"},
        initializer_range=0.06,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def _write(path: Path, rows: Iterator[dict[str, object]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
