"""Text of strangers on one line of a terminal.

last_of(row.response, 60)
"""


def last_of(text: str, width: int) -> str:
    """The end of a text, at most `width` characters, on one line.

    A model may write anything: half a surrogate pair, or what a terminal takes for a command.
    """
    line = "".join(each if each.isprintable() else "�" for each in " ".join(text.split()))
    return line if len(line) <= width else f"…{line[1 - width :]}"
