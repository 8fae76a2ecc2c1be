"""Dialogs: which tokens finetuning trains on, and rows that it refuses with file and line."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from slime_core.data import ChatTemplate, HfTokenizer
from slime_core.errors import DataError
from slime_core.roles import RowFormat
from slime_train.dialogs import Dialog, DialogReader
from tests.data import templates
from tests.data.templates import with_template
from tests.tables import table

CHAT = RowFormat(input_key="messages", apply_chat_template=True)
PAIR = RowFormat(input_key="q", label_key="a")
ASKED = RowFormat(input_key="q", label_key="a", apply_chat_template=True)
CALL = {"function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
WRITTEN = '<tool_call>weather {"city": "Paris"}</tool_call>'


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
    [dialog] = read(tokenizer, tmp_path, ASKED, {"q": "2+3?", "a": "5"})
    assert trained(tokenizer, dialog) == ["5<end>"]
    assert tokenizer.decode(dialog.prompt) == "user\n2+3?\nassistant\n"


@table(
    "form, row, message",
    [
        (CHAT, {"messages": says("2+3?")}, "rows.jsonl:1: none of its messages is the assistant's"),
        (CHAT, {"messages": [5]}, "rows.jsonl:1: message 0 of 'messages' must be an object"),
        (CHAT, {"message": []}, "no key 'messages'; the row has message: give --input-key"),
        (PAIR, {"q": "2+3=", "a": 5}, "'a' must be a text, got int"),
        (PAIR, {"q": "", "a": "5"}, "'q' must be a text or a list of chat messages, got nothing"),
        (PAIR, {"q": "2+3=", "a": ""}, "its response is empty"),
        (RowFormat(input_key="q"), {"q": "2+3=5"}, "give label_key"),
        (PAIR, {"q": says("2+3?"), "a": "5"}, "give label_key, .* both texts"),
        (ASKED, {"q": says("2+3?", "5"), "a": "5"}, "'q' ends with an answer, and label_key adds another"),
    ],
)
def test_bad_rows_are_refused(
    tokenizer: HfTokenizer, tmp_path: Path, form: RowFormat, row: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        read(tokenizer, tmp_path, form, row)


def test_rows_that_are_bad_or_too_long_are_left_out_and_counted(tokenizer: HfTokenizer, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = ['{"messages": 5}', "no json", *(json.dumps({"messages": says("2+3?", "5" * n)}) for n in (1, 30, 60, 2))]
    path.write_text("\n".join(rows))
    reader = DialogReader(tokenizer, replace(CHAT, max_bad_row_rate=0.5, max_prompt_len=40), 60)
    assert [trained(tokenizer, each) for each in reader.read([path])] == [["5<end>"], ["55<end>"]]
    first = f"{path}:1: 'messages' must be a text or a list of chat messages, got int"
    assert reader.notes == [f"rows.jsonl: left out 2 dialogs longer than 40 tokens; 2 bad rows, the first: {first}"]
    with pytest.raises(
        DataError, match=r":5: 75 tokens, and the model has 60 positions: .* rollout_max_context_len = 60"
    ):
        DialogReader(tokenizer, CHAT, 60).read([Path(f"{path}@[4:5]")])
    with pytest.raises(DataError, match="2 of 6 rows are bad, more than max_bad_row_rate"):
        DialogReader(tokenizer, CHAT).read([path])


THINKING = says("2+3?", "<think>\nhm\n</think>\n\n5", "and 1?", "<think>\nso\n</think>\n\n6")
CALLING: list[dict[str, object]] = [
    {"role": "user", "content": "w?"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\n", "tool_calls": [CALL]},
    {"role": "tool", "content": "20"},
    {"role": "assistant", "content": "It is 20."},
    {"role": "user", "content": "s"},
    {"role": "assistant", "content": "a"},
]
MASKS: list[tuple[str, Sequence[Mapping[str, object]], list[str], str]] = [
    ("QWEN3", THINKING, ["5<end>", "<think>\nso\n</think>\n\n6<end>"], "assistant\n"),
    ("QWEN3", says("q", "5"), ["<think>\n\n</think>\n\n5<end>"], "assistant\n"),
    ("QWEN3", CALLING, [f"{WRITTEN}<end>", "It is 20.<end>", "<think>\n\n</think>\n\na<end>"], "assistant\n"),
    ("QWEN3_THINKING", THINKING, ["5<end>", "so\n</think>\n\n6<end>"], "assistant\n"),
    ("QWEN3_THINKING", says("q", "5"), ["\n</think>\n\n5<end>"], "assistant\n<think>\n"),
    ("NEMOTRON", THINKING, ["</think>\n\n5<end>", "so\n</think>\n\n6<end>"], "assistant\n<think>"),
    ("NEMOTRON", says("q", "5"), ["</think>5<end>"], "assistant\n<think>"),
    ("DEEPSEEK", THINKING[:3] + says("", "6")[1:], ["\n\n5<end>", "6<end>"], "assistant\n"),
    ("DEEPSEEK", CALLING, ['\n\n<call>weather\n{"city": "Paris"}</call><end>', "It is 20.<end>", "a<end>"], ""),
    ("PHI3", says("q", "a", "s", "t"), ["a<end>", "t<end>"], "assistant\n"),
    ("LLAMA2", says("I", "N", "S", "T"), [" N <end>", " T <end>"], "[/INST]"),
    ("MISTRAL", [{"role": "system", "content": "Add."}, *says("q", "a", "s", "t")], [" a<end>", " t<end>"], "q[/INST]"),
    ("GEMMA", CALLING, ["call:weather,city:Paris;", "It is 20.<end>", "a<end>"], "assistant\n"),
    ("PARTS", says("q", "a", "s", "t"), ["a<end>", "t<end>"], "assistant\n"),
]


@table("name, messages, runs, prompt", MASKS)
def test_the_mask_is_that_of_the_whole_dialog_for_every_kind_of_template(
    tokenizer: HfTokenizer,
    tmp_path: Path,
    name: str,
    messages: Sequence[Mapping[str, object]],
    runs: list[str],
    prompt: str,
) -> None:
    """Short texts, so that they stand elsewhere in the text, too."""
    other = with_template(tokenizer, getattr(templates, name))
    [dialog] = read(other, tmp_path, CHAT, {"messages": messages})
    assert trained(tokenizer, dialog) == runs
    assert tokenizer.decode(dialog.prompt).endswith(prompt)


def test_a_last_turn_has_the_reasoning_that_the_template_always_drops(tokenizer: HfTokenizer, tmp_path: Path) -> None:
    """As generation makes it, also where the prompt opens the reasoning."""
    opening = templates.DEEPSEEK.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
    for template, first in ((templates.DEEPSEEK, "<think>\n"), (opening, "")):
        [several, one] = read(
            with_template(tokenizer, template), tmp_path, CHAT, {"messages": THINKING}, {"messages": THINKING[:2]}
        )
        assert trained(tokenizer, several)[-1] == f"{first}so\n</think>\n\n6<end>"
        assert trained(tokenizer, one) == [f"{first}hm\n</think>\n\n5<end>"]


def test_a_template_that_leaves_out_an_earlier_answer_is_refused(tokenizer: HfTokenizer, tmp_path: Path) -> None:
    forgetful = with_template(
        tokenizer,
        templates.CHATML.replace("{{ m.content }}", "{{ m.content if loop.last or m.role == 'user' else '...' }}"),
    )
    [dialog] = read(forgetful, tmp_path, CHAT, {"messages": says("2+3?", "5")})
    assert trained(forgetful, dialog) == ["5<end>"]
    with pytest.raises(DataError, match=r"message 1 \(assistant\): the chat template leaves out '8'"):
        read(forgetful, tmp_path, CHAT, {"messages": says("2+3?", "8", "and 1?", "6")})


@pytest.fixture(scope="module")
def prefixing(tokenizer: HfTokenizer) -> HfTokenizer:
    """A tokenizer that puts a space before each text that it encodes, as Llama 2's does."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer, backend.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<pad>", "<s>", "<|im_end|>"], show_progress=False)
    letters = "".join(map(chr, range(32, 127)))
    backend.train_from_iterator([f"{letters} [INST] The sum of it [/INST] is five. "] * 4, trainer)
    template = ChatTemplate({"default": templates.LLAMA2}, {}, "m")
    return HfTokenizer(backend, frozenset({2}), template, "m")


WORDS = st.lists(st.text(st.sampled_from("The sum of itfv.=+23"), min_size=1, max_size=9).filter(str.strip), min_size=2)


@given(WORDS)
@settings(max_examples=40)
def test_whole_and_cut_ids_agree_for_a_tokenizer_that_begins_texts_with_a_space(
    prefixing: HfTokenizer, tmp_path_factory: pytest.TempPathFactory, turns: list[str]
) -> None:
    folder, messages = tmp_path_factory.mktemp("rows"), says(*turns[: len(turns) // 2 * 2])
    [dialog] = read(prefixing, folder, CHAT, {"messages": messages})
    whole = prefixing.encode(prefixing.apply_chat_template(messages, None, {"add_generation_prompt": False}))
    assert [*dialog.prompt, *dialog.response] == whole
    assert list(dialog.prompt) == prefixing.encode(prefixing.apply_chat_template(messages[:1]))
    [pair] = read(prefixing, folder, PAIR, {"q": "2+3=", "a": "5 it is"})
    assert [*pair.prompt, *pair.response] == [*prefixing.encode("2+3=5 it is"), 2]
