"""Dialogs: which tokens finetuning trains on, and rows that it refuses with file and line."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.data import Dialog, DialogReader, HfTokenizer
from slime_core.errors import DataError
from slime_core.roles import RowFormat

CHAT = RowFormat(input_key="messages", apply_chat_template=True)
PAIR = RowFormat(input_key="q", label_key="a")


def read(tokenizer: HfTokenizer, tmp_path: Path, form: RowFormat, *rows: dict[str, object]) -> list[Dialog]:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return DialogReader(tokenizer, form).read([path])


def says(*turns: str) -> list[dict[str, str]]:
    return [{"role": "assistant" if place % 2 else "user", "content": turn} for place, turn in enumerate(turns)]


def trained(tokenizer: HfTokenizer, dialog: Dialog) -> list[str]:
    """The runs of tokens of mask 1, as text with their end tokens."""
    runs: list[list[int]] = [[]]
    for token, bit in zip(dialog.response, dialog.loss_mask, strict=True):
        if bit:
            runs[-1].append(token)
        elif runs[-1]:
            runs.append([])
    return [tokenizer.decode(run) + ("<end>" if run[-1] in tokenizer.eos_token_ids else "") for run in runs if run]


def test_the_assistants_turns_and_their_end_tokens_are_trained_on(tokenizer: HfTokenizer, tmp_path: Path) -> None:
    [dialog] = read(tokenizer, tmp_path, CHAT, {"messages": says("2+3?", "5", "and 1?", "6")})
    assert trained(tokenizer, dialog) == ["5<end>", "6<end>"]
    assert tokenizer.decode(dialog.prompt) == "user\n2+3?\nassistant\n"
    assert dialog.loss_mask[-1] == 1


def test_an_answer_is_encoded_as_it_is_generated_after_its_prompt(tokenizer: HfTokenizer, tmp_path: Path) -> None:
    [dialog] = read(tokenizer, tmp_path, CHAT, {"messages": says("2+3?", "The answer is 5.")})
    assert list(dialog.prompt) == tokenizer.encode(tokenizer.apply_chat_template(says("2+3?")))
    assert list(dialog.response) == [*tokenizer.encode("The answer is 5."), 2]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="<|>"), min_size=1), min_size=2, max_size=6))
def test_ids_are_those_of_the_rendered_text_and_masks_those_of_the_assistant(
    tokenizer: HfTokenizer, tmp_path_factory: pytest.TempPathFactory, turns: list[str]
) -> None:
    messages = says(*turns[: len(turns) // 2 * 2])
    [dialog] = read(tokenizer, tmp_path_factory.mktemp("rows"), CHAT, {"messages": messages})
    text = tokenizer.apply_chat_template(messages, kwargs={"add_generation_prompt": False})
    whole = tokenizer.decode([*dialog.prompt, *dialog.response])
    assert whole == tokenizer.decode(tokenizer.encode(text)).removesuffix("\n")
    answers = [message["content"] for message in messages[1::2]]
    assert trained(tokenizer, dialog) == [f"{answer}<end>" for answer in answers]
    assert sum(dialog.loss_mask) == sum(len(tokenizer.encode(answer)) + 1 for answer in answers)


def test_a_prompt_and_a_response_are_columns_of_their_own(tokenizer: HfTokenizer, tmp_path: Path) -> None:
    [dialog] = read(tokenizer, tmp_path, PAIR, {"q": "2+3=", "a": "5"})
    assert list(dialog.prompt) == tokenizer.encode("2+3=")
    assert list(dialog.response) == [*tokenizer.encode("5"), 2]
    assert list(dialog.loss_mask) == [1, 1]
    chat = RowFormat(input_key="q", label_key="a", apply_chat_template=True)
    [dialog] = read(tokenizer, tmp_path, chat, {"q": "2+3?", "a": "5"})
    assert trained(tokenizer, dialog) == ["5<end>"]
    assert tokenizer.decode(dialog.prompt) == "user\n2+3?\nassistant\n"


@pytest.mark.parametrize(
    ("form", "row", "message"),
    [
        (CHAT, {"messages": says("2+3?")}, "rows.jsonl:1: none of its messages is the assistant's"),
        (CHAT, {"messages": [5]}, "a list of messages with role and content"),
        (CHAT, {"message": []}, "no column 'messages'; the row has 'message'"),
        (PAIR, {"q": "2+3=", "a": 5}, "column 'a' must be a text, got int"),
        (PAIR, {"q": "", "a": "5"}, "its prompt is empty"),
        (RowFormat(input_key="q"), {"q": "2+3=5"}, "give label_key"),
    ],
)
def test_bad_rows_are_refused(
    tokenizer: HfTokenizer, tmp_path: Path, form: RowFormat, row: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(tokenizer, tmp_path, form, row)


def test_a_template_that_rewrites_earlier_turns_is_refused(model_dir: Path, tmp_path: Path) -> None:
    """As those do that leave out the thinking of all turns but the last."""
    config = json.loads((model_dir / "tokenizer_config.json").read_text())
    config["chat_template"] = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n"
        "{{ m['content'] if loop.last or m['role'] == 'user' else '...' }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    for file in model_dir.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    forgetful = HfTokenizer.load(tmp_path)
    [dialog] = read(forgetful, tmp_path, CHAT, {"messages": says("2+3?", "5")})
    assert trained(forgetful, dialog) == ["5<end>"]
    with pytest.raises(DataError, match="writes message 1 otherwise when others follow it; make a row of each"):
        read(forgetful, tmp_path, CHAT, {"messages": says("2+3?", "5", "and 1?", "6")})
