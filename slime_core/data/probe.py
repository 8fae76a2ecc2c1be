"""Probe: what a tokenizer and a chat template do to a small text, found by having them do it.

Example:

    end_of_turn(tokenizer.apply_chat_template, {"<|im_end|>": 2})      # "<|im_end|>"
"""

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from slime_core.errors import DataError
from slime_core.sample import Json, Message

if TYPE_CHECKING:
    import tokenizers

_ANSWER = "qANSWERq"
"""Nothing that a template quotes or trims."""
_CONTENTS: Sequence[Json] = (_ANSWER, [{"type": "text", "text": _ANSWER}])
"""As most templates read it; as some of models with images do."""


def end_of_turn(render: Callable[[Sequence[Message]], str], special: Collection[str]) -> str | None:
    """The first special token that a template writes after the assistant's answer; None: there is none.

    Args:
        render: messages to text, without the beginning of another answer.
        special: texts of the tokenizer's special tokens.
    """
    for content in _CONTENTS:
        try:
            _, answer, after = render(
                [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]
            ).rpartition(_ANSWER)
        except DataError:  # it refuses so small a dialog, or content of this shape
            continue
        if answer:
            found = [(after.index(token), -len(token), token) for token in special if token in after]
            return min(found)[2] if found else None
    return None


def bos_text(backend: "tokenizers.Tokenizer") -> str:
    """Text of the special tokens that the tokenizer puts before every text, mostly one BOS; empty if none.

    Put before a text that is encoded without special tokens, it gives the ids of the text encoded with them.
    """
    plain, whole = (list(backend.encode("a", add_special_tokens=special).ids) for special in (False, True))
    places = [at for at in range(len(whole)) if whole[at : at + len(plain)] == plain]
    if not places or not places[0]:
        return ""
    wanted = [*whole[: places[0]], *plain]
    bos = str(backend.decode(wanted[: places[0]], skip_special_tokens=False))
    # Tokenizers that begin the first piece of a text with a space do not take what follows the BOS for the first.
    ways = [each for each in (bos, f"{bos} ") if backend.encode(f"{each}a", add_special_tokens=False).ids == wanted]
    return ways[0] if ways else bos


def joins_pieces(backend: "tokenizers.Tokenizer") -> bool:
    """Whether texts that are encoded one by one read as one text; where not, each piece begins with a space."""
    pieces = [number for text in ("a", "b") for number in backend.encode(text, add_special_tokens=False).ids]
    whole = backend.encode("ab", add_special_tokens=False).ids
    read, wanted = (str(backend.decode(ids, skip_special_tokens=False)) for ids in (pieces, whole))
    return read == wanted or wanted != "ab"  # one that cannot write "ab" shows nothing
