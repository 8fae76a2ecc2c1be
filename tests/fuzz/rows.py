"""Any bytes and any JSON as a prompt file: each reader gives prompts or dialogs, or a DataError says what is wrong."""

import json
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyarrow as pa
from hypothesis import assume
from hypothesis import strategies as st
from pyarrow import parquet
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from slime_core.data import HfTokenizer, PromptTable
from slime_core.errors import DataError
from slime_core.roles import PromptFile, RowFormat
from slime_core.sample import Json
from slime_train.dialogs import DialogReader

TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c | tojson }}{% endfor %}<|end|>\n{% endfor %}"
    "{% if tools %}{{ tools | tojson }}{% endif %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ROLES = st.sampled_from(["user", "assistant", "system", "tool", ""])
TEXTS = st.text(max_size=12) | st.sampled_from(["\ud83d", "\0", "<|end|>", "<|assistant|>", "None", "{{", "[[[[{}]]]]"])
NUMBERS = st.integers() | st.floats() | st.sampled_from([10**400, -0.0, 1e308])
VALUES: st.SearchStrategy[Json] = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
PARTS = st.lists(st.fixed_dictionaries({"type": st.just("text") | TEXTS, "text": TEXTS | VALUES}), max_size=2)
CALLS = st.lists(
    st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": TEXTS, "arguments": TEXTS | VALUES})}), max_size=2
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": ROLES, "content": TEXTS | PARTS | VALUES}, optional={"tool_calls": CALLS | VALUES})
    | VALUES,
    max_size=4,
)
ROWS = st.fixed_dictionaries(
    {"messages": MESSAGES | TEXTS | VALUES},
    optional={"answer": TEXTS | VALUES, "tools": TEXTS | VALUES, "metadata": VALUES},
)
FORMATS = st.builds(
    RowFormat,
    input_key=st.sampled_from(["messages", "nothing"]),
    label_key=st.none() | st.just("answer"),
    apply_chat_template=st.booleans(),
    max_prompt_len=st.none() | st.integers(1, 50),
)


@cache
def tokenizer() -> HfTokenizer:
    """A tokenizer of bytes with a chat template."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|end|>", "<|user|>", "<|assistant|>"]
    trainer = trainers.BpeTrainer(special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["What is 2+3?"], trainer)
    folder = Path(tempfile.mkdtemp())
    backend.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text('{"eos_token_id": 0}')
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATE}))
    return HfTokenizer.load(folder)


def fuzz(data: st.DataObject) -> None:
    """Read one file by the readers of RL and of finetuning."""
    row_format = data.draw(FORMATS)
    with tempfile.TemporaryDirectory() as folder:
        path = _written(data, Path(folder))
        with suppress(DataError):
            PromptTable([PromptFile.of(path, "rows", row_format)], tokenizer()).groups(1)
        with suppress(DataError):
            dialogs = DialogReader(tokenizer(), row_format).read([path])
            assert all(len(each.loss_mask) == len(each.response) for each in dialogs)


def _written(data: st.DataObject, folder: Path) -> Path:
    kind = data.draw(st.sampled_from(["bytes", "lines", "json", "parquet"]))
    path = folder / ("rows.parquet" if kind == "parquet" else "rows.jsonl")
    match kind:
        case "bytes":
            path.write_bytes(data.draw(st.binary(max_size=200)))
        case "lines":
            line = st.builds(lambda row, cut: json.dumps(row).encode()[: cut or None], ROWS, st.integers(0, 40))
            path.write_bytes(b"\n".join(data.draw(st.lists(line, max_size=3))))
        case "json":
            rows = data.draw(st.lists(ROWS, min_size=1, max_size=2))
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case _:
            try:
                parquet.write_table(pa.Table.from_pylist(data.draw(st.lists(ROWS, min_size=1, max_size=2))), path)
            except (pa.ArrowException, UnicodeError, OverflowError, TypeError, ValueError):
                assume(condition=False)
    return path
