r"""Finds the final answer in a response: the content of the last `\boxed{...}` after the last `</think>`."""

END_OF_THOUGHT = "</think>"
BOX = "\\boxed"
MAX_ANSWER = 10_000
"""Characters; a longer box is no answer, and is not read to its end."""


def last_boxed(response: str) -> str | None:
    r"""The content of the last box, braces inside it balanced; None if there is no box or it does not close.

    Only the last box counts, so an answer that was cut off is not replaced by an earlier one. Time is linear in the
    response's length, and what is inside the box is read once.
    """
    start = response.rfind(BOX, response.rfind(END_OF_THOUGHT) + 1)
    if start < 0:
        return None
    rest = response[start + len(BOX) : start + len(BOX) + MAX_ANSWER].lstrip()
    if not rest.startswith("{"):
        return None
    end = _closing_brace(rest)
    return rest[1:end].strip() if end is not None else None


def _closing_brace(text: str) -> int | None:
    r"""Where the brace that opens `text` is closed; `\{` and `\}` are characters, not braces."""
    depth, escaped = 0, False
    for position, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
    return None
