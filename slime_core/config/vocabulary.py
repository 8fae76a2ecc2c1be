"""Vocabularies: whether the ids of one model mean the same to another, by the tokenizer files of both.

Example:

    unlike(Path("policy"), Path("teacher"))     # "id 7 is 'the' to one and 'a' to the other", or None
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from slime_core.errors import ModelError
from slime_core.sample import Json


def unlike(policy: Path, other: Path) -> str | None:
    """Which id of the policy's tokenizer another one does not have, or has for another text; None if there is none.

    The other may have more: models of one family pad their vocabularies to different sizes.

    Raises:
        ModelError: a tokenizer.json cannot be read.
    """
    if (policy / "tokenizer.json").read_bytes() == (other / "tokenizer.json").read_bytes():
        return None
    ours, theirs = _texts(policy), _texts(other)
    for number in sorted(ours):
        if (text := theirs.get(number)) != ours[number]:
            meant = "no token" if text is None else repr(text)
            return f"id {number} is {ours[number]!r} to the policy, and {meant} to it"
    return None


def _texts(directory: Path) -> Mapping[int, str]:
    """The text of each id."""
    path = directory / "tokenizer.json"
    try:
        about = cast(dict[str, dict[str, Json]], json.loads(path.read_text("utf-8")))
        vocab = about["model"]["vocab"]
        if isinstance(vocab, dict):
            texts = {cast(int, number): text for text, number in vocab.items()}
        else:  # Unigram: texts with their scores, in order
            texts = {number: cast(str, entry[0]) for number, entry in enumerate(cast(list[list[Json]], vocab))}
        added = cast(list[dict[str, Json]], about.get("added_tokens") or [])
        return texts | {cast(int, each["id"]): cast(str, each["content"]) for each in added}
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ModelError(
            f"{path} cannot be read as a tokenizer: {type(error).__name__}: {error}; save it with `save_pretrained` of "
            "transformers"
        ) from None
