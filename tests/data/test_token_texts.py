"""Token texts: all together are the text of the whole, and no piece is a part of a character."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from slime_core.data import HfTokenizer, token_texts

characters = st.characters(exclude_categories=["Cs"], exclude_characters=["\ufffd"])


def test_tokens_that_are_parts_of_one_character_come_together(model_dir: Path) -> None:
    tokenizer = HfTokenizer.load(model_dir)
    ids = tokenizer.encode("a🙂b")
    assert list(token_texts(ids, tokenizer)) == [("a", 1), ("🙂", len(ids) - 2), ("b", 1)]


def test_what_ends_within_a_character_is_shown_all_the_same(model_dir: Path) -> None:
    tokenizer = HfTokenizer.load(model_dir)
    ids = tokenizer.encode("🙂")[:-1]
    assert list(token_texts(ids, tokenizer)) == [("\ufffd", len(ids))]


@given(text=st.text(characters))
def test_the_pieces_are_the_text(model_dir: Path, text: str) -> None:
    tokenizer = HfTokenizer.load(model_dir)
    ids = tokenizer.encode(text)
    pieces = list(token_texts(ids, tokenizer))
    assert "".join(piece for piece, _ in pieces) == text
    assert sum(count for _, count in pieces) == len(ids)
