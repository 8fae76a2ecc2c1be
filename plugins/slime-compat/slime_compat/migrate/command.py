"""Given: the flags of a training command, each with its values and its line.

Example:

    list(given_flags(training))     # [Given("actor_num_nodes", ("1",), 153), Given("colocate", (), 155), ...]
"""

from collections.abc import Iterator
from dataclasses import dataclass

from slime_compat.migrate.words import Text, Unknown, Word


@dataclass(frozen=True, slots=True)
class Given:
    """One flag."""

    name: str
    """Without dashes in front, with underscores; empty: words that no flag was before."""
    values: tuple[Text, ...]
    """What follows it."""
    line: int
    """The line of the flag."""
    file: str = ""
    """The file of that line, where it is not the script itself."""

    @property
    def typed(self) -> str:
        """As it stands there, with what is known of its values."""
        texts = ["…" if isinstance(each, Unknown) else each for each in self.values]
        name = f"--{self.name.replace('_', '-')}" if self.name else ""
        return " ".join(filter(None, (name, *texts)))

    @property
    def unknown(self) -> Unknown | None:
        """What is not known of it."""
        return next((each for each in self.values if isinstance(each, Unknown)), None)


def given_flags(words: tuple[Word, ...]) -> Iterator[Given]:
    """The flags among words, in order."""
    name, values, at = "", list[Text](), words[0] if words else Word("", 0)
    for word in words:
        if isinstance(word.text, str) and word.text.startswith("--") and len(word.text) > 2:
            if name or values:
                yield Given(name, tuple(values), at.line, at.file)
            before, equals, after = word.text.removeprefix("--").partition("=")
            name, values, at = before.replace("-", "_"), [after] if equals else [], word
        elif word.several:
            yield Given("", (word.text,), word.line, word.file)
        else:
            values.append(word.text)
    if name or values:
        yield Given(name, tuple(values), at.line, at.file)
