"""Streamed text: the joined parts equal the text of the whole response, and no part is revoked."""

import itertools
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from slime_core.roles import FinishReason, GenerateChunk, GenerateOutput, SamplingParams
from slime_core.rollout import response_text
from slime_core.sample import Json, Message
from slime_local.generate import StreamedText
from slime_local.sampling import StopTexts
from tests.tables import table

SPECIAL = 256
ALPHABET = "ab<é😀"


class ByteTokenizer:
    """One token for each byte, and a special one; implements `slime_core.roles.Tokenizer`."""

    eos_token_ids = frozenset({SPECIAL})

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        special = b"" if skip_special_tokens else b"<end>"
        return b"".join(special if token == SPECIAL else bytes([token]) for token in tokens).decode("utf-8", "replace")

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Json = None,
        kwargs: Mapping[str, Json] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        return str(messages)


TOKENIZER = ByteTokenizer()


def answered(tokens: list[int], sampling: SamplingParams) -> GenerateOutput:
    """What an engine makes of tokens that a model would go on with: it ends with a text of `stop`."""
    texts = StopTexts(sampling.stop, lambda ids: TOKENIZER.decode(ids, skip_special_tokens=False))
    for length in range(1, len(tokens) + 1):
        if (matched := texts.completed(tokens[:length])) is not None:
            return GenerateOutput(tokens[:length], [0.0] * length, FinishReason.STOP, 3, matched)
    return GenerateOutput(tokens, [0.0] * len(tokens), FinishReason.LENGTH, 3)


def parts_of(output: GenerateOutput, cuts: Sequence[int]) -> list[GenerateChunk]:
    """The response cut at some places; the last part may be empty."""
    places = [0, *sorted({cut % (len(output.tokens) + 1) for cut in cuts} - {0}), len(output.tokens)]
    spans = list(itertools.pairwise(places))
    return [
        GenerateChunk(output.tokens[begin:end], output.log_probs[begin:end], 3, *how)
        for number, (begin, end) in enumerate(spans)
        for how in [(output.finish, output.matched) if number == len(spans) - 1 else ()]
    ]


pieces = st.one_of(
    st.text(ALPHABET, max_size=8).map(lambda text: list(text.encode())),
    st.lists(st.integers(0, 255), max_size=3),
    st.just([SPECIAL]),
)


@given(
    made=st.lists(pieces, max_size=8).map(lambda found: [token for piece in found for token in piece]),
    cuts=st.lists(st.integers(0, 80), max_size=40),
    stop=st.lists(st.text(ALPHABET, min_size=1, max_size=4), max_size=3).map(tuple),
    no_stop_trim=st.booleans(),
    skip_special_tokens=st.booleans(),
)
def test_streamed_text_equals_the_whole(
    made: list[int], cuts: list[int], stop: tuple[str, ...], no_stop_trim: bool, skip_special_tokens: bool
) -> None:
    sampling = SamplingParams(80, stop=stop, no_stop_trim=no_stop_trim, skip_special_tokens=skip_special_tokens)
    output = answered(made, sampling)
    expected = response_text(TOKENIZER, output, sampling)
    text, shown = StreamedText(TOKENIZER, sampling), ""
    for chunk in parts_of(output, cuts):
        shown += text.add(chunk)
        assert expected.startswith(shown)
    assert shown == expected


STOPS = ("END", "EEE")


@table(
    "text, sampling, shown",
    [
        ("abc", SamplingParams(9), ["a", "b", "c"]),
        ("a😀b", SamplingParams(9), ["a", "", "", "", "😀", "b"]),
        ("xEEx", SamplingParams(9, stop=STOPS, no_stop_trim=False), ["x", "", "", "EEx"]),
        ("xEEx", SamplingParams(9, stop=STOPS), ["x", "E", "E", "x"]),
    ],
)
def test_settled_text_is_shown_at_once(text: str, sampling: SamplingParams, shown: list[str]) -> None:
    streamed = StreamedText(TOKENIZER, sampling)
    assert [streamed.add(GenerateChunk([token], [0.0], 0)) for token in TOKENIZER.encode(text)] == shown


def test_changed_text_is_shown_again() -> None:
    class Shouting(ByteTokenizer):
        def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
            text = super().decode(tokens)
            return text.upper() if "!" in text else text

    text = StreamedText(Shouting(), SamplingParams(9))
    parts = [([97], ()), ([98, 33], ()), ([99], (FinishReason.STOP, None))]
    shown = [text.add(GenerateChunk(tokens, [0.0] * len(tokens), 0, *how)) for tokens, how in parts]
    assert shown == ["a", "", "\nAB!C"]
