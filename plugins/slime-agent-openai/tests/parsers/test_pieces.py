from collections.abc import Callable

import chat
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from slime_agent_openai.parsers.pieces import Piece, Pieces
from slime_core.data import HfTokenizer
from tests.tables import table

CALL, THINK = "<tool_call>", "</think>"
MARKERS = (CALL, THINK)
LINES = ["the <answer> is 42, call the tool", "Größe 日本 🙂 def f(x):\n    return x"]


def byte_level() -> tokenizers.Tokenizer:
    return chat.byte_level(LINES, 300)


def with_leading_spaces() -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    backend.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=120, show_progress=False, special_tokens=["<unk>"])
    backend.train_from_iterator(LINES, trainer)
    return backend


def of_bytes_where_unknown() -> HfTokenizer:
    """As SentencePiece models are converted: a run of tokens for bytes is decoded as a whole, or not at all."""
    letters = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"abcdefghijklmnopqrstuvwxyz", "▁a"]
    model = tokenizers.models.BPE(
        {letter: at for at, letter in enumerate(letters)}, [("▁", "a")], unk_token="<unk>", byte_fallback=True
    )
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = tokenizers.normalizers.Replace(" ", "▁")
    parts = tokenizers.decoders
    backend.decoder = parts.Sequence(
        [parts.Replace("▁", " "), parts.ByteFallback(), parts.Fuse(), parts.Strip(" ", 1, 0)]
    )
    backend.add_special_tokens([CALL])
    return HfTokenizer(backend, frozenset(), None, "a test")


def of_words() -> tokenizers.Tokenizer:
    words = ["<unk>", "the", "answer", "is", "42", "日本", "<", ">", "/", "think", "tool_call"]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<unk>")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return backend


MADE: dict[str, HfTokenizer] = {}
for make in (byte_level, with_leading_spaces, of_words):
    for marked in (True, False):
        backend = make()
        backend.add_special_tokens(["<|end|>"])
        if marked:
            backend.add_tokens([tokenizers.AddedToken(marker, normalized=False) for marker in MARKERS])
        name = f"{make.__name__}{', with tokens for markers' if marked else ''}"
        MADE[name] = HfTokenizer(backend, frozenset({backend.token_to_id("<|end|>")}), None, "a test")
MARKED = MADE["byte_level, with tokens for markers"]
SPELLED = MADE["byte_level"]


def pieces_of(tokenizer: HfTokenizer, ids: list[int]) -> list[Piece]:
    pieces = Pieces(tokenizer, MARKERS)
    return [*pieces.feed(ids), *pieces.end()]


@settings(deadline=None, max_examples=200)
@given(name=st.sampled_from(sorted(MADE)), data=st.data())
def test_all_pieces_together_are_the_text(name: str, data: st.DataObject) -> None:
    tokenizer = MADE[name]
    ends = tokenizer.eos_token_ids
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=80))
    pieces = pieces_of(tokenizer, ids)
    while ids and ids[-1] in ends:
        ids.pop()
    assert "".join(piece.text for piece in pieces) == tokenizer.decode(ids, skip_special_tokens=False)
    assert all(piece.text for piece in pieces)


@settings(deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"])), size=st.integers(1, 200))
def test_half_a_character_waits(text: str, size: int) -> None:
    pieces = Pieces(SPELLED, ())
    ids = SPELLED.encode(text * (size if len(text) < 3 else 1))
    for token in ids:
        assert all("\ufffd" not in piece.text or "\ufffd" in text for piece in pieces.feed([token]))
    assert "".join(piece.text for piece in pieces.end()).strip("\ufffd") == ""


FALLBACK = of_bytes_where_unknown()


@settings(deadline=None)
@given(text=st.text(st.sampled_from("ab é日🙂"), max_size=80))
def test_characters_that_are_only_there_as_bytes_are_whole(text: str) -> None:
    pieces = Pieces(FALLBACK, MARKERS)
    ids = FALLBACK.encode(text)
    told = [piece.text for token in ids for piece in pieces.feed([token])]
    assert "\ufffd" not in "".join(told)
    assert "".join([*told, *(piece.text for piece in pieces.end())]) == FALLBACK.decode(ids, skip_special_tokens=False)


@settings(deadline=None)
@given(ids=st.lists(st.integers(129, FALLBACK.vocab_size - 1), max_size=300))  # no byte that is a letter by itself
def test_broken_bytes_cost_no_text_around_them(ids: list[int]) -> None:
    said = "".join(piece.text for piece in pieces_of(FALLBACK, ids))
    plain = FALLBACK.decode(ids, skip_special_tokens=False)
    letters = [letter for letter in plain if "a" <= letter <= "z"]
    assert [letter for letter in said if "a" <= letter <= "z"] == letters


def test_a_long_run_of_broken_characters_is_told_as_it_comes() -> None:
    broken = SPELLED.encode("日")[0]
    pieces = Pieces(SPELLED, ())
    told = sum(len(piece.text) for _ in range(1000) for piece in pieces.feed([broken]))
    assert told >= 997
    assert sum(len(piece.text) for piece in pieces.end()) == 1000 - told


def test_only_its_own_token_is_a_marker() -> None:
    spelled = SPELLED.encode(CALL)
    assert len(spelled) > 1
    token = MARKED.encode(CALL)
    assert pieces_of(MARKED, [*spelled, *token, *spelled])[-2:] != [Piece(CALL, marker=True)] * 2
    assert [piece.text for piece in pieces_of(MARKED, [*spelled, *token, *spelled]) if piece.marker] == [CALL]


def test_a_marker_without_a_token_is_its_characters() -> None:
    ids = SPELLED.encode(f"a <tool{CALL}{THINK} <too")
    found = pieces_of(SPELLED, ids)
    assert [piece.text for piece in found if piece.marker] == [CALL, THINK]
    assert "".join(piece.text for piece in found) == f"a <tool{CALL}{THINK} <too"


def test_what_waited_is_told_before_a_marker() -> None:
    pieces = Pieces(MARKED, [CALL, "<tool>"])
    ids = MARKED.encode(f"the <too{CALL}")
    assert [*pieces.feed(ids), *pieces.end()][-2:] == [Piece("<too"), Piece(CALL, marker=True)]


def test_what_may_become_a_marker_waits() -> None:
    pieces = Pieces(SPELLED, MARKERS)
    told = "".join(piece.text for piece in pieces.feed(SPELLED.encode("the <tool_")))
    assert told == "the "
    assert "".join(piece.text for piece in pieces.feed(SPELLED.encode("x"))) == "<tool_x"


@table("written, read", [("the", "the"), ("the<|end|>", "the"), ("<|end|>the", "<|end|>the")])
def test_an_end_is_left_out_where_the_answer_ends(written: str, read: str) -> None:
    assert "".join(piece.text for piece in pieces_of(MARKED, MARKED.encode(written))) == read


def test_an_end_that_is_a_marker_stays() -> None:
    backend = byte_level()
    backend.add_special_tokens([CALL])
    tokenizer = HfTokenizer(backend, frozenset({backend.token_to_id(CALL)}), None, "a test")
    assert pieces_of(tokenizer, tokenizer.encode(CALL)) == [Piece(CALL, marker=True)]


def test_reading_takes_as_many_steps_as_there_are_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[int] = []
    decode: Callable[..., str] = HfTokenizer.decode

    def counted(self: HfTokenizer, tokens: list[int], *, skip_special_tokens: bool = True) -> str:
        decoded.append(len(tokens))
        return decode(self, tokens, skip_special_tokens=skip_special_tokens)

    monkeypatch.setattr(HfTokenizer, "decode", counted)
    ids = MARKED.encode("the answer is 42 日本 🙂 ") * 100
    pieces_of(MARKED, ids)
    assert max(decoded) < 24 + 48
    assert sum(decoded) < 4 * len(ids)
    broken = FALLBACK.encode("日日")[:-1] * 400
    pieces_of(FALLBACK, broken)
    assert max(decoded) < 120
