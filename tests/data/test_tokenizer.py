"""HfTokenizer: ids, text, ends and chat templates as Hugging Face has them, and errors that say what to type."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.data import ChatTemplate, HfTokenizer, token_texts
from slime_core.errors import DataError, ModelError
from tests.tables import table

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 2+3? <é> & 'x'"}]
TOOLS = [{"type": "function", "function": {"name": "add", "description": "a < b & c"}}]


@pytest.fixture
def copy(model_dir: Path, tmp_path: Path) -> Path:
    """A copy of the model directory to spoil."""
    return Path(shutil.copytree(model_dir, tmp_path / "copy"))


def change(directory: Path, name: str, **values: object) -> None:
    path = directory / name
    old = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**old, **values}))


@given(text=st.text())
def test_text_survives_encoding(tokenizer: HfTokenizer, text: str) -> None:
    plain = "".join(character for character in text if not 0xD800 <= ord(character) <= 0xDFFF).replace("<|", "")
    assert tokenizer.decode(tokenizer.encode(plain)) == plain
    assert tokenizer.encode("5<|im_end|>") == [*tokenizer.encode("5"), 2]
    assert tokenizer.decode([*tokenizer.encode("5"), 2]) == "5"


def test_ids_are_those_of_transformers(tokenizer: HfTokenizer, model_dir: Path) -> None:
    from transformers import AutoTokenizer

    reference = AutoTokenizer.from_pretrained(model_dir)
    for text in ("What is 2+3?", " leading", "<|im_start|>user\nhi<|im_end|>\n", "naïve – ☃"):
        assert tokenizer.encode(text) == reference.encode(text, add_special_tokens=False)


@table(
    "template",
    [
        "{%- for m in messages %}\n  {{- m.role + ': ' + m.content }}\n{% endfor %}\n{{ bos_token }}|{{ eos_token }}",
        "{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}{{ messages | tojson }}",
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m['content'] | trim }}{% endfor %}",
        "{% for m in messages %}{% generation %}{{ m['content'] }}{% endgeneration %}{% endfor %}",
        "{{ flavour if flavour is defined else 'plain' }}{% set ns = namespace(n=0) %}{% set ns.n = 3 %}{{ ns.n }}",
    ],
)
def test_templates_render_as_in_transformers(copy: Path, template: str) -> None:
    from transformers import AutoTokenizer

    change(copy, "tokenizer_config.json", chat_template=template, bos_token="<|im_start|>")
    reference = AutoTokenizer.from_pretrained(copy)
    for tools in (None, TOOLS):
        wanted = reference.apply_chat_template(
            CHAT, tools=tools, tokenize=False, add_generation_prompt=True, flavour="x"
        )
        assert HfTokenizer.load(copy).apply_chat_template(CHAT, tools, {"flavour": "x"}) == wanted  # type: ignore[arg-type]


def test_prompts_with_tools_take_the_template_for_tools(copy: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    change(copy, "tokenizer_config.json", chat_template=named)
    tokenizer = HfTokenizer.load(copy)
    assert tokenizer.apply_chat_template(CHAT) == "plain"  # type: ignore[arg-type]
    assert tokenizer.apply_chat_template(CHAT, TOOLS) == "tools"  # type: ignore[arg-type]
    (copy / "chat_template.jinja").write_text("from the file")
    assert HfTokenizer.load(copy).apply_chat_template(CHAT) == "from the file"  # type: ignore[arg-type]


SHAPE = "chat_template must be a text, or a list of tables"
SPOILT: list[tuple[str, bytes | dict[str, object] | None, str]] = [
    ("chat_template.jinja", b"\xff{{ messages }}", r"cannot read .*chat_template\.jinja: 'utf-8' codec"),
    ("tokenizer_config.json", {"chat_template": [{"nme": "default", "template": ""}]}, SHAPE),
    ("tokenizer_config.json", {"chat_template": 5}, SHAPE),
    ("tokenizer_config.json", {"chat_template": ["x"]}, SHAPE),
    ("tokenizer_config.json", {"chat_template": "one\n{% if %}"}, "is broken in line 2"),
    ("tokenizer_config.json", {"chat_template": None}, r"has no chat template \(no chat_template\.jinja"),
    ("tokenizer.json", b"{", r"cannot read .*tokenizer\.json"),
    ("tokenizer_config.json", b"{", r"cannot read .*tokenizer_config\.json"),
    ("generation_config.json", b"{", r"cannot read .*generation_config\.json"),
    ("tokenizer.json", None, r"has no tokenizer\.json: copy the file"),
    ("", None, "there is no model directory"),
]


@table("name, content, says", SPOILT)
def test_what_is_wrong_with_a_directory_is_named(
    model_dir: Path, tmp_path: Path, name: str, content: bytes | dict[str, object] | None, says: str
) -> None:
    copy = tmp_path / f"copy{len(list(tmp_path.iterdir()))}"
    if name:
        shutil.copytree(model_dir, copy)
    if isinstance(content, dict):
        change(copy, name, **content)
    elif content is not None:
        (copy / name).write_bytes(content)
    elif name:
        (copy / name).unlink()
    with pytest.raises(ModelError, match=says):
        HfTokenizer.load(copy).apply_chat_template(CHAT)  # type: ignore[arg-type]


@table("template", ["{{ messages.__class__.__mro__[1].__subclasses__() }}", "{{ messages.append(1) }}"])
def test_a_template_cannot_reach_out_of_its_sandbox_or_change_the_messages(template: str) -> None:
    with pytest.raises(DataError, match=r"refuses the messages: .*(unsafe|not safely)"):
        ChatTemplate({"default": template}, {}, "m").render(CHAT)  # type: ignore[arg-type]


def test_a_model_without_end_is_refused(copy: Path) -> None:
    (copy / "generation_config.json").unlink()
    change(copy, "tokenizer_config.json", eos_token=None, chat_template="{{ messages }}")
    with pytest.raises(ModelError, match="eos_token_id"):
        HfTokenizer.load(copy)


@table(
    "name, value, ends",
    [
        ("generation_config.json", {"eos_token_id": 1}, {1, 2}),
        ("generation_config.json", {"eos_token_id": [0, 3]}, {0, 2, 3}),
        ("config.json", {"eos_token_id": 3}, {2, 3}),
        ("config.json", {"text_config": {"eos_token_id": 1}}, {1, 2}),
    ],
)
def test_every_file_may_name_ends(copy: Path, name: str, value: dict[str, object], ends: set[int]) -> None:
    for each in ("generation_config.json", "config.json"):
        (copy / each).unlink(missing_ok=True)
    change(copy, name, **value)
    assert HfTokenizer.load(copy).eos_token_ids == ends


def test_a_truncating_tokenizer_is_read_whole(copy: Path) -> None:
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    change(copy, "tokenizer.json", truncation=truncation)
    text = "What is 2+3? " * 20
    tokenizer = HfTokenizer.load(copy)
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_what_a_dict_has_itself_is_no_member_of_it_in_a_template() -> None:
    message = {"role": "user", "content": "x", "items": "member", "keys": 1}
    template = ChatTemplate({"default": "{{ messages[0].role }}{{ messages[0].items() | list | length }}"}, {}, "m")
    assert template.render([message]) == "user4"
    missing = ChatTemplate({"default": "{{ messages[0].name is defined }}{{ messages[0]['items'] }}"}, {}, "m")
    assert missing.render([message]) == "Falsemember"


def test_tokens_that_are_parts_of_one_character_come_together(model_dir: Path) -> None:
    tokenizer = HfTokenizer.load(model_dir)
    ids = tokenizer.encode("a🙂b")
    assert list(token_texts(ids, tokenizer)) == [("a", 1), ("🙂", len(ids) - 2), ("b", 1)]
    assert list(token_texts(ids[1:-2], tokenizer)) == [("\ufffd", len(ids) - 3)]
