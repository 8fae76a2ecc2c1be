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


def tokenizer_of(markers: tuple[str, ...]) -> HfTokenizer:
    backend = byte_level()
    backend.add_special_tokens(["<|end|>"])
    backend.add_tokens([tokenizers.AddedToken(marker, normalized=False) for marker in markers])
    return HfTokenizer(backend, frozenset({backend.token_to_id("<|end|>")}), None, "a test")


MARKED, SPELLED, FALLBACK = tokenizer_of(MARKERS), tokenizer_of(()), of_bytes_where_unknown()


def pieces_of(tokenizer: HfTokenizer, ids: list[int]) -> list[Piece]:
    pieces = Pieces(tokenizer, MARKERS)
    return [*pieces.feed(ids), *pieces.end()]


@settings(deadline=None, max_examples=200)
@given(tokenizer=st.sampled_from([MARKED, SPELLED]), data=st.data())
def test_pieces_join_to_the_decoded_text(tokenizer: HfTokenizer, data: st.DataObject) -> None:
    ends = tokenizer.eos_token_ids
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=80))
    pieces = pieces_of(tokenizer, ids)
    while ids and ids[-1] in ends:
        ids.pop()
    assert "".join(piece.text for piece in pieces) == tokenizer.decode(ids, skip_special_tokens=False)
    assert all(piece.text for piece in pieces)


@settings(deadline=None)
@given(text=st.text(st.characters(codec="utf-8", exclude_categories=["Cs"])), size=st.integers(1, 200))
def test_incomplete_character_is_held_back(text: str, size: int) -> None:
    pieces = Pieces(SPELLED, ())
    ids = SPELLED.encode(text * (size if len(text) < 3 else 1))
    for token in ids:
        assert all("\ufffd" not in piece.text or "\ufffd" in text for piece in pieces.feed([token]))
    assert "".join(piece.text for piece in pieces.end()).strip("\ufffd") == ""


@settings(deadline=None)
@given(text=st.text(st.sampled_from("ab é日🙂"), max_size=80))
def test_byte_fallback_characters_are_whole(text: str) -> None:
    pieces = Pieces(FALLBACK, MARKERS)
    ids = FALLBACK.encode(text)
    told = [piece.text for token in ids for piece in pieces.feed([token])]
    assert "\ufffd" not in "".join(told)
    assert "".join([*told, *(piece.text for piece in pieces.end())]) == FALLBACK.decode(ids, skip_special_tokens=False)


def test_only_the_special_token_is_a_marker() -> None:
    spelled = SPELLED.encode(CALL)
    assert len(spelled) > 1
    token = MARKED.encode(CALL)
    assert pieces_of(MARKED, [*spelled, *token, *spelled])[-2:] != [Piece(CALL, marker=True)] * 2
    assert [piece.text for piece in pieces_of(MARKED, [*spelled, *token, *spelled]) if piece.marker] == [CALL]


def test_possible_marker_prefix_is_held_back() -> None:
    pieces = Pieces(SPELLED, MARKERS)
    told = "".join(piece.text for piece in pieces.feed(SPELLED.encode("the <tool_")))
    assert told == "the "
    assert "".join(piece.text for piece in pieces.feed(SPELLED.encode("x"))) == "<tool_x"


@table("written, read", [("the", "the"), ("the<|end|>", "the"), ("<|end|>the", "<|end|>the")])
def test_trailing_end_token_is_stripped(written: str, read: str) -> None:
    assert "".join(piece.text for piece in pieces_of(MARKED, MARKED.encode(written))) == read


def test_decoding_is_linear_in_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
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
