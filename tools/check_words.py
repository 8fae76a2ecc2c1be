"""Words that make readers stop, in docs, docstrings, comments and messages. `make lint` runs this check.

    .venv/bin/python tools/check_words.py                        the checkout
    .venv/bin/python tools/check_words.py docs/train.md          these pages and modules alone

Prints a line per finding, with what to write instead, and exits 1 if there is one. CONTRIBUTING.md has the rules for
words; this check finds the constructions that a pattern can find. `tools/words.toml` lists exceptions, each with its
reason. An exception that no longer applies is a finding too.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORDS = {
    r"(who|what|which|whose)(so)?ever|wherever": "name the thing, or write `each` or `any`",
    r"(some|no|any|every)body": "name the person or program: a user, a plugin author, another process",
    r"anew|likewise|thereby|for ever|besides?": "write `again`, `also`, `thus`, `always`, `next to` or `other than`",
    r"(is|are|was|were) (told|said|heard)|(told|tells|says?) of": "write `receives`, `reports`, `lists` or `contains`",
    r"of (its|their|one's|your) own|of (ours|yours|theirs)|(is|are) of the": "write `its own X` or `a separate X`",
    r"those (that|who|of)|that which|that of": "repeat the noun",
    r"by turns|as far as": "write `alternately`, `where`, `up to`",
    r"(is|are) to be": "write `must be` or `will be`",
    r"affair|stumbl\w+|at home|(gives?|takes?) up": "write a plain verb: `fails`, `releases`, `occupies`",
}
CONSTRUCTIONS = [(re.compile(rf"\b({words})\b", re.IGNORECASE), instead) for words, instead in WORDS.items()]
FENCE = re.compile(r"^ *(```|~~~).*?^ *\1|<!--.*?-->", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"(`+).+?\1|\]\([^)]*\)|<code>.*?</code>|\"[^\"\n]*\"")
"""Inline code, the targets of links, and what is quoted: a page may name what it advises against."""
FEWEST_WORDS = 4
"""A string of fewer words is a key or a label, not a message."""
PLACES = (
    "README.md",
    "CONTRIBUTING.md",
    "docs/**/*.md",
    "plugins/*/README.md",
    "slime_core/**/*.py",
    "plugins/*/slime_*/**/*.py",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Print what was found and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, help="pages and modules (default: the checkout)")
    parser.add_argument("--root", type=Path, default=ROOT, help="(this checkout)")
    given = parser.parse_args(argv)
    paths = given.paths or sorted(path for place in PLACES for path in given.root.glob(place))
    found = list(findings(given.root, paths, everything=not given.paths))
    print("\n".join(found) or "every sentence is in plain words, where a pattern can see it")
    return 1 if found else 0


def findings(root: Path, paths: Sequence[Path], *, everything: bool = True) -> Iterator[str]:
    """A line for each construction to replace, and for each exception in `tools/words.toml` that covers nothing."""
    exceptions = tomllib.loads((root / "tools/words.toml").read_text("utf-8"))["exception"]
    used = set()
    for path in paths:
        place = path.resolve().relative_to(root.resolve()).as_posix()
        for line, text in prose(path):
            for pattern, instead in CONSTRUCTIONS:
                for match in pattern.finditer(text):
                    covered_by = _number_of_exception(exceptions, place, text)
                    used.add(covered_by)
                    if covered_by is None:
                        at = line + text.count("\n", 0, match.start())
                        yield f"{place}:{at}: `{match[0]}` in `{_around(text, match)}`: {instead}"
    if everything:
        for number, exception in enumerate(exceptions):
            if number not in used:
                text = exception.get("text", "")
                yield f"tools/words.toml: nothing in {exception['place']} needs the exception {text!r}"


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and sentences of a page, or docstrings, comments and messages of a module."""
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        yield from _strings(source)
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    else:
        yield 1, QUOTED.sub(" ", FENCE.sub(lambda found: "\n" * found[0].count("\n"), source))


def _strings(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= FEWEST_WORDS:
            yield node.lineno, QUOTED.sub(" ", node.value)


def _number_of_exception(exceptions: Sequence[dict[str, str]], place: str, text: str) -> int | None:
    """The number of the exception that covers a text, if one does."""
    for number, exception in enumerate(exceptions):
        if re.fullmatch(exception["place"], place) and exception.get("text", "") in text:
            return number
    return None


def _around(text: str, match: re.Match[str]) -> str:
    return " ".join(text[max(0, match.start() - 30) : match.end() + 30].split())


if __name__ == "__main__":
    sys.exit(main())
