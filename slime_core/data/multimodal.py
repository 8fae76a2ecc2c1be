"""Media of a row: each `<image>`, `<video>` or `<audio>` of a text becomes the next item of the row's column.

Example:

    place_media([{"role": "user", "content": "<image>What is this?"}], {"image": ["cat.png"]})
    # content: [{"type": "image", "image": "cat.png"}, {"type": "text", "text": "What is this?"}]
"""

import re
from collections.abc import Mapping, Sequence

from slime_core.roles import MediaKeys
from slime_core.sample import Json, Message

KINDS = ("image", "video", "audio")
"""Kinds of media; each is also the key of its part of a message."""
_PLACEHOLDER = re.compile(f"<({'|'.join(KINDS)})>")


def collect_media(values: Mapping[str, Json], keys: MediaKeys) -> dict[str, list[Json]]:
    """The items of each kind in a row; a single one counts as a list of one, an absent column as none.

    Args:
        values: the row.
        keys: column by kind.
    """
    return {kind: _as_list(values.get(key)) for kind, key in keys.items()}


def _as_list(items: Json) -> list[Json]:
    if items is None:
        return []
    return list(items) if isinstance(items, list) else [items]


def place_media(messages: Sequence[Message], media: Mapping[str, Sequence[Json]]) -> list[Message]:
    """The messages with every placeholder replaced; messages whose content is already a list stay as they are.

    Raises:
        ValueError: more placeholders than items, or fewer.
    """
    left = {kind: list(items) for kind, items in media.items()}
    placed: list[Message] = []
    for message in messages:
        content = message.get("content")
        placed.append({**message, "content": _parts(content, left)} if isinstance(content, str) else dict(message))
    if not _has_parts(messages):
        for kind, items in left.items():
            if items:
                count = len(media[kind])
                raise ValueError(f"{count} of {kind}, but only {count - len(items)} times <{kind}> in the prompt")
    return placed


def _parts(text: str, left: Mapping[str, list[Json]]) -> Json:
    """A content's parts; the text itself where it holds no placeholder."""
    if not _PLACEHOLDER.search(text):
        return text
    parts: list[Json] = []
    for number, piece in enumerate(_PLACEHOLDER.split(text)):
        if number % 2 == 0:
            parts += [{"type": "text", "text": piece}] if piece else []
        elif piece not in left:
            parts.append({"type": "text", "text": f"<{piece}>"})  # a kind that has no column is plain text
        elif left[piece]:
            item = left[piece].pop(0)
            parts.append(item if isinstance(item, dict) else {"type": piece, piece: item})
        else:
            raise ValueError(f"the prompt says <{piece}> more often than the row has one")
    return parts


def _has_parts(messages: Sequence[Message]) -> bool:
    """Whether media may already stand where they belong."""
    return any(isinstance(message.get("content"), list) for message in messages)
