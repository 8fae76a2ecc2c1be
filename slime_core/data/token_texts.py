"""Token texts: the text of each token of a sequence, so that all together are the text of the whole.

A character may be spread over several tokens, none of which has a text of its own: those come together.

Example:

    for text, count in token_texts(sample.tokens, tokenizer): ...
"""

from collections.abc import Iterator, Sequence

from slime_core.roles import Tokenizer


def token_texts(ids: Sequence[int], tokenizer: Tokenizer) -> Iterator[tuple[str, int]]:
    """Each piece of text and how many tokens it is of, special tokens included."""
    held: list[int] = []
    for number in ids:
        held.append(number)
        text = tokenizer.decode(held, skip_special_tokens=False)
        if not text.endswith("\ufffd"):
            yield text, len(held)
            held = []
    if held:
        yield tokenizer.decode(held, skip_special_tokens=False), len(held)
