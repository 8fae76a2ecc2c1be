"""What is found out of a tokenizer: the end of a turn, and the BOS of plain prompts."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from slime_core.data import HfTokenizer, with_bos

SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]
LETTERS = [*" ▁ab<>s/|\n", "Ċ", "Ġ"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def plain() -> Tokenizer:
    vocabulary = {text: number for number, text in enumerate(dict.fromkeys([*SPECIAL, *LETTERS]))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    backend.add_special_tokens(SPECIAL)
    return backend


def spaced(scheme: str) -> Tokenizer:
    """Llama 2's way, which puts a space before a text, or before each of its pieces between special tokens."""
    backend = plain()
    if scheme == "normalizer":
        backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        parts = [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        backend.decoder = decoders.Sequence(parts)
    else:
        backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
        backend.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return backend


def byte_level() -> Tokenizer:
    backend = plain()
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def adding_bos(backend: Tokenizer, after: str = "") -> Tokenizer:
    backend.post_processor = processors.TemplateProcessing(
        single=f"<s> $A {after}".strip(), special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    return backend


def write(directory: Path, backend: Tokenizer, template: str | None = None, **config: object) -> HfTokenizer:
    directory.mkdir(parents=True, exist_ok=True)
    backend.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "bos_token": "<s>", **config}))
    if template is not None:
        (directory / "chat_template.jinja").write_text(template)
    return HfTokenizer.load(directory)


BACKENDS: dict[str, Callable[[], Tokenizer]] = {
    "byte_level": byte_level,
    "byte_level_eos": lambda: adding_bos(byte_level(), "</s>"),
    "byte_level_bos": lambda: adding_bos(byte_level()),
    "normalizer": lambda: adding_bos(spaced("normalizer")),
    "always": lambda: adding_bos(spaced("always")),
    "first": lambda: adding_bos(spaced("first")),
}


@pytest.mark.parametrize("name", BACKENDS)
@given(text=st.text(alphabet="ab <", min_size=1, max_size=6))
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_plain_prompt_has_the_ids_that_its_tokenizer_makes(tmp_path: Path, name: str, text: str) -> None:
    backend = BACKENDS[name]()
    tokenizer = write(tmp_path / name, backend)
    prompt, whole = with_bos(text, tokenizer), backend.encode(text).ids
    assert tokenizer.encode(prompt) == (whole[:-1] if name == "byte_level_eos" else whole)
    assert with_bos(prompt, tokenizer) == prompt


def test_a_model_can_say_that_prompts_have_no_bos(tmp_path: Path) -> None:
    tokenizer = write(tmp_path, adding_bos(byte_level()), add_bos_token=False)
    assert with_bos("ab", tokenizer) == "ab"
    [note] = tokenizer.notes(chat=False)
    assert "begin without '<s>'" in note
    assert "add_bos_token = false" in note
    assert not tokenizer.notes(chat=True)


ENDS = {
    CHATML: "<|im_end|>",
    "{% for m in messages %}{{ m.content }}{{ '</s>' if loop.last else '<|im_end|>' }}{% endfor %}": "</s>",
    "{% for m in messages %}[INST]{{ m.content }} </s>{% endfor %}": "</s>",
    "{% for m in messages %}### {{ m.role }}\n{{ m.content }}\n{% endfor %}": None,
    "{% for m in messages %}<s>{{ m.content }}{% endfor %}": None,
    "{{ raise_exception('no') }}": None,
    "{% for m in messages %}{% for c in m.content %}{{ c.text }}{% endfor %}<|im_end|>{% endfor %}": "<|im_end|>",
    "no answer</s>": None,
}  # fmt: skip


def test_the_end_of_a_turn_is_the_special_token_after_the_answer(tmp_path: Path) -> None:
    found = {}
    for number, template in enumerate(ENDS):
        tokenizer = write(tmp_path / str(number), byte_level(), template)
        found[template] = None if tokenizer.end_of_turn is None else SPECIAL[tokenizer.end_of_turn]
        assert tokenizer.eos_token_ids == {2} | ({4} if found[template] == "<|im_end|>" else set())
    assert found == ENDS


def test_an_end_that_no_file_names_is_one_and_is_said(tmp_path: Path) -> None:
    tokenizer = write(tmp_path, byte_level(), CHATML, eos_token="<unk>")
    assert tokenizer.eos_token_ids == {0, 4}
    [note] = tokenizer.notes(chat=True)
    assert "ends an answer with '<|im_end|>'" in note
    assert not write(tmp_path, byte_level(), CHATML, eos_token="<|im_end|>").notes(chat=True)


def test_a_model_whose_template_alone_has_an_end_is_taken(tmp_path: Path) -> None:
    assert write(tmp_path, byte_level(), CHATML, eos_token=None).eos_token_ids == {4}
