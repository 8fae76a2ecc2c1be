"""HOSTILE: responses that a policy may well produce while it learns."""

from collections.abc import Mapping

HOSTILE: Mapping[str, str] = {
    "nothing": "",
    "spaces": " " * 10_000,
    "NUL and a lone surrogate": "\0\ud800",
    "right-to-left and combining marks": "\u202e" + "e" + "\u0301" * 5_000,
    "no number": "nan",
    "infinity": "-inf",
    "an overflow": "1e999",
    "200 000 digits": "9" * 200_000,
    "a tower of powers": "9**9**9**9",
    "5 000 nested boxes": "\\boxed{" * 5_000 + "1" + "}" * 5_000,
    "100 000 open braces": "{" * 100_000,
    "100 000 open brackets": "[" * 100_000,
    "a mebibyte of one word": "answer " * 150_000,
    "text that pretends to be code": "__import__('os')._exit(3)",
    "an end of thought that never began": "</think>" * 1_000,
}
"""Response by what it is."""
