"""StreamedText: the text of a response that comes in parts, as far as nothing that is still to come can change it.

    text = StreamedText(tokenizer, sampling)
    async for chunk in engine.stream(request):
        print(text.add(chunk), end="")                 # in all: `response_text` of the whole response

What is held back for a while: a character of which only some bytes are there, and what may be the beginning of a text
of `stop` that will be trimmed.
"""

from collections.abc import Sequence

from slime_core.roles import GenerateChunk, GenerateOutput, SamplingParams, Tokenizer
from slime_core.rollout.generate import response_text, text_of

CUT = "\ufffd"
"""What a tokenizer makes of bytes that are not a character, or not yet."""


class StreamedText:
    """The text of one response."""

    def __init__(self, tokenizer: Tokenizer, sampling: SamplingParams) -> None:
        """Nothing has come yet."""
        self._tokenizer, self._sampling = tokenizer, sampling
        self._stops = () if sampling.no_stop_trim else sampling.stop
        self._chunks: list[GenerateChunk] = []
        self._shown = ""

    def add(self, chunk: GenerateChunk) -> str:
        """What is to be shown after this part, and was not before; after the last one, all that is left.

        A tokenizer whose text of more tokens does not begin with that of fewer has the whole text on a new line then.
        """
        self._chunks.append(chunk)
        if chunk.finish is not None:
            text = response_text(self._tokenizer, GenerateOutput.joined(self._chunks), self._sampling)
            return text[len(self._shown) :] if text.startswith(self._shown) else f"\n{text}"
        tokens = [token for each in self._chunks for token in each.tokens]
        text = before_stops(text_of(self._tokenizer, tokens, self._sampling).rstrip(CUT), self._stops)
        if not text.startswith(self._shown):
            return ""
        new, self._shown = text[len(self._shown) :], text
        return new


def before_stops(text: str, stops: Sequence[str]) -> str:
    """The text up to the first of the texts that it holds, or to the longest end that one of them begins with."""
    ends = [len(text)]
    for stop in stops:
        ends += [found] if (found := text.find(stop)) >= 0 else []
        ends += [len(text) - size for size in range(1, len(stop)) if text.endswith(stop[:size])]
    return text[: min(ends)]
