"""The reward `ifbench`: 1 if a response follows every instruction of its row; and the instructions' verifiers.

Example:

    metadata = {"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}
"""

import itertools
import json
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from slime_core import Sample, Score, Unscored, Verdict
from slime_core.roles import RewardContext
from slime_core.sample import Json
from slime_reward_math.extract import thought_ends
from slime_reward_math.plugin import IfbenchSettings
from slime_reward_math.rewards.answers import boxed
from slime_reward_math.tree import listed

MAX_TEXT = 200_000
"""Characters of a response that are verified; a longer one is cut off, so that time is bounded."""


class MissingArgument(Exception):
    """The row lacks an argument of the instruction."""


@dataclass(frozen=True, slots=True)
class Arguments:
    """The row's arguments for one instruction."""

    values: Mapping[str, Json]

    def text(self, name: str, default: str | None = None) -> str:
        """A text."""
        value = self.values.get(name)
        if isinstance(value, str):
            return value
        if default is None:
            raise MissingArgument(name)
        return default

    def number(self, name: str, default: int | None = None) -> int:
        """An integer."""
        value = self.values.get(name)
        if isinstance(value, int | float | str) and not isinstance(value, bool):
            try:
                return int(float(value))
            except (ValueError, OverflowError):
                pass
        if default is None:
            raise MissingArgument(name)
        return default

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        value = self.values.get(name)
        if not isinstance(value, list):
            raise MissingArgument(name)
        return [str(each) for each in value]

    def compares(self, found: int, wanted: str, relation: str) -> bool:
        """Whether a count is `less than`, `at most`, `exactly` or, without a word, `at least` what is wanted."""
        expected, how = self.number(wanted), self.text(relation, "at least")
        rules = {"less than": found < expected, "at most": found <= expected, "exactly": found == expected}
        return rules.get(how, found >= expected)


Verifier: TypeAlias = Callable[[str, Arguments], bool]
"""Whether a response follows an instruction; raises MissingArgument where the row is incomplete."""


def text_of(response: str) -> str:
    """The part of a response that is verified."""
    return response[:MAX_TEXT]


_WORD = re.compile(r"\w+(?:['’\-]\w+)*")
_SENTENCE_END = re.compile(r"[.!?]+(?:[\"')\]]*)(?=\s|$)")
_NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?![\w])")
_CONJUNCTIONS = frozenset({"for", "and", "nor", "but", "or", "yet", "so"})
_PRONOUNS = listed(
    """i me my mine myself we us our ours ourselves you your yours yourself yourselves he him his himself she her hers
    herself it its itself they them their theirs themselves"""
)


def words(text: str) -> list[str]:
    """The words of a text."""
    return _WORD.findall(text)


def sentences(text: str) -> list[str]:
    """The sentences of a text: what ends in `.`, `!` or `?`, and the rest."""
    found, start = [], 0
    for match in _SENTENCE_END.finditer(text):
        found.append(text[start : match.end()].strip())
        start = match.end()
    return [each for each in (*found, text[start:].strip()) if each]


def paragraphs(text: str) -> list[str]:
    """Paragraphs, separated by blank lines or `***`."""
    parts = re.split(r"\n[ \t]*\*\*\*[ \t]*\n|\n[ \t]*\n", text)
    return [each.strip() for each in parts if each.strip()]


def occurrences(text: str, phrase: str) -> int:
    """How often a phrase stands in a text as a whole, in any case."""
    pattern = rf"(?<!\w){re.escape(phrase)}(?!\w)"
    return len(re.findall(pattern, text, re.IGNORECASE))


def _letters(text: str, arguments: Arguments) -> bool:
    count = text.lower().count(arguments.text("letter").lower())
    return arguments.compares(count, "let_frequency", "let_relation")


def _capitals(text: str, arguments: Arguments) -> bool:
    count = sum(word.isupper() for word in words(text))
    return arguments.compares(count, "capital_frequency", "capital_relation")


def _nth_paragraph(text: str, arguments: Arguments) -> bool:
    found, place = paragraphs(text), arguments.number("nth_paragraph")
    if len(found) != arguments.number("num_paragraphs") or not 1 <= place <= len(found):
        return False
    first = words(found[place - 1])[:1]
    return bool(first) and first[0].lower() == arguments.text("first_word").lower().strip(string.punctuation)


def _paragraph_count(text: str, arguments: Arguments) -> bool:
    parts = [each for each in re.split(r"\s?\*\*\*\s?", text.strip()) if each.strip()]
    return len(parts) == arguments.number("num_paragraphs")


def _keyword_in_sentence(text: str, arguments: Arguments) -> bool:
    found, place = sentences(text), arguments.number("N")
    return 1 <= place <= len(found) and occurrences(found[place - 1], arguments.text("word")) > 0


_PLACEHOLDER = re.compile(r"\[[^\[\]\n]{1,200}\]")
_BULLET = re.compile(r"^[ \t]*(?:\*(?!\*)|-)[ \t]*\S", re.MULTILINE)
_HIGHLIGHT = re.compile(r"\*\*[^*\n]+\*\*|\*[^*\n]+\*")
_TITLE = re.compile(r"<<[^<>\n]+>>")
_FENCE = re.compile(r"^```(?:json|JSON|Json)?\s*|\s*```$")
_SMALL = frozenset(
    {"a", "an", "the", "and", "but", "or", "nor", "for", "of", "in", "on", "at", "to", "by", "as", "with"}
)
_EMOJI = re.compile("[\u2600-\u27bf\U0001f300-\U0001faff]\ufe0f?$")
_CONSTRAINED = ("my answer is yes.", "my answer is no.", "my answer is maybe.")


def _is_json(text: str, given: Arguments) -> bool:
    try:
        json.loads(_FENCE.sub("", text.strip()))
    except (ValueError, RecursionError):
        return False
    return True


def _highlights(text: str, given: Arguments) -> bool:
    found = {each.strip("*").strip() for each in _HIGHLIGHT.findall(text)}
    return len(found - {""}) >= given.number("num_highlights")


def _sections(text: str, given: Arguments) -> bool:
    splitter = re.escape(given.text("section_spliter").strip())
    return len(re.findall(rf"\s?{splitter}\s?\d+\s?", text)) >= given.number("num_sections")


def _two_responses(text: str, given: Arguments) -> bool:
    parts = text.split("******")
    full = [each.strip() for each in parts if each.strip()]
    return len(full) == 2 and full[0] != full[1]


def _postscript(text: str, given: Arguments) -> bool:
    marker = given.text("postscript_marker", "P.S.").lower()
    pattern = {"p.p.s": r"\s*p\.\s?p\.\s?s", "p.s.": r"\s*p\.\s?s\."}.get(marker, re.escape(marker))
    return re.search(pattern, text.lower()) is not None


def _quoted(text: str, given: Arguments) -> bool:
    bare = text.strip()
    return len(bare) > 1 and bare[0] == bare[-1] == '"'


def _nested(text: str, opening: str, closing: str, wanted: int) -> bool:
    depth = deepest = 0
    for sign in text:
        depth = max(0, depth + (sign in opening) - (sign in closing))
        deepest = max(deepest, depth)
    return deepest >= wanted


def _title_case(text: str, given: Arguments) -> bool:
    found = [word for word in words(text) if word[0].isalpha()]
    return bool(found) and all(word[0].isupper() or word in _SMALL for word in found)


def _emoji(text: str, given: Arguments) -> bool:
    found = [line.strip() for line in re.split(r"(?<=[.!?])\s+(?=[A-Z])|\n+", text) if line.strip()]
    return bool(found) and all(_EMOJI.search(each) is not None for each in found)


def _one_word_a_line(text: str, given: Arguments) -> bool:
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return bool(lines) and all(len(line) == 1 for line in lines)


def _indented(text: str, given: Arguments) -> bool:
    indents = [len(line) - len(line.lstrip()) for line in text.splitlines() if line.strip()]
    return len(indents) > 1 and all(one < two for one, two in itertools.pairwise(indents))


def _option(text: str, given: Arguments) -> bool:
    options = re.split(r"\s*(?:/|\bor\b|,)\s*", given.text("options"))
    return text.strip().strip(".").lower() in {each.strip().strip(".").lower() for each in options if each.strip()}


def _listed(text: str, given: Arguments) -> bool:
    sign = given.text("sep")
    return sum(line.strip().startswith(sign) for line in text.splitlines()) > 1


def _declared(text: str, given: Arguments) -> bool:
    asked = sum(each.rstrip("\"')").endswith("?") for each in sentences(text))
    told = sum(each.rstrip("\"')").endswith(".") for each in sentences(text))
    return asked > 0 and told == 2 * asked


PALINDROMES = 10
"""Number of palindromes that `words:palindrome` requires."""
_PRIMES = frozenset({2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43})
_CLUSTER = re.compile(r"[bcdfghjklmnpqrstvwxyz]{2}", re.IGNORECASE)


def _pairs(items: list[str]) -> list[tuple[str, str]]:
    return list(itertools.pairwise(items))


def _low(text: str) -> list[str]:
    return [word.lower() for word in words(text)]


def _alphabet(text: str, given: Arguments) -> bool:
    found = [word for word in _low(text) if "a" <= word[0] <= "z"]
    return bool(found) and all((ord(two[0]) - ord(one[0])) % 26 == 1 for one, two in _pairs(found))


def _last_first(text: str, given: Arguments) -> bool:
    found = [_low(each) for each in sentences(text)]
    full = [each for each in found if each]
    return bool(full) and all(one[-1] == two[0] for one, two in itertools.pairwise(full))


def _paragraph_ends(text: str, given: Arguments) -> bool:
    found = [_low(each) for each in paragraphs(text)]
    return bool(found) and all(each and each[0] == each[-1] for each in found)


def _repeats(text: str, given: Arguments) -> bool:
    counts = Counter(_low(text))
    return bool(counts) and max(counts.values()) <= given.number("small_n")


def _palindromes(text: str, given: Arguments) -> bool:
    found = {word for word in _low(text) if len(word) >= 5 and word == word[::-1]}
    return len(found) >= PALINDROMES


def _position(text: str, given: Arguments) -> bool:
    found, keyword = _low(text), given.text("keyword").lower()
    return len(found) > 1 and found[1] == keyword and found[-2] == keyword


def _specific_position(text: str, given: Arguments) -> bool:
    lines, place, word = sentences(text), given.number("n"), given.number("m")
    if not 1 <= place <= len(lines):
        return False
    found = _low(lines[place - 1])
    return 1 <= word <= len(found) and found[word - 1] == given.text("keyword").lower()


def _increment(text: str, given: Arguments) -> bool:
    counts = [len(words(each)) for each in sentences(text)]
    step = given.number("small_n")
    return bool(counts) and all(two - one == step for one, two in itertools.pairwise(counts))


def _span(text: str, given: Arguments) -> bool:
    prompt = given.text("prompt_to_repeat").split()
    wanted = prompt[given.number("n_start") : given.number("n_end")]
    return text.split() == wanted


VERIFIERS: dict[str, Verifier] = {
    "keywords:existence": lambda text, given: all(occurrences(text, each) for each in given.texts("keywords")),
    "keywords:frequency": lambda text, given: given.compares(
        occurrences(text, given.text("keyword")), "frequency", "relation"
    ),
    "keywords:forbidden_words": lambda text, given: (
        not any(occurrences(text, each) for each in given.texts("forbidden_words"))
    ),
    "keywords:letter_frequency": _letters,
    "length_constraints:number_sentences": lambda text, given: given.compares(
        len(sentences(text)), "num_sentences", "relation"
    ),
    "length_constraints:number_paragraphs": _paragraph_count,
    "length_constraints:number_words": lambda text, given: given.compares(len(words(text)), "num_words", "relation"),
    "length_constraints:nth_paragraph_first_word": _nth_paragraph,
    "change_case:capital_word_frequency": _capitals,
    "punctuation:no_comma": lambda text, given: "," not in text,
    "count:word_count_range": lambda text, given: (
        given.number("min_words") <= len(words(text)) <= given.number("max_words")
    ),
    "count:unique_word_count": lambda text, given: len({word.lower() for word in words(text)}) >= given.number("N"),
    "count:numbers": lambda text, given: len(_NUMBER.findall(text)) == given.number("N"),
    "count:conjunctions": lambda text, given: (
        len(_CONJUNCTIONS.intersection(word.lower() for word in words(text))) >= given.number("small_n")
    ),
    "count:pronouns": lambda text, given: sum(word.lower() in _PRONOUNS for word in words(text)) >= given.number("N"),
    "count:punctuation": lambda text, given: all(sign in text for sign in ".,!?;:"),
    "sentence:keyword": _keyword_in_sentence,
    "detectable_content:number_placeholders": lambda text, given: (
        len(_PLACEHOLDER.findall(text)) >= given.number("num_placeholders")
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": lambda text, given: (
        len(_BULLET.findall(text)) == given.number("num_bullets")
    ),
    "detectable_format:constrained_response": lambda text, given: any(each in text.lower() for each in _CONSTRAINED),
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": _sections,
    "detectable_format:json_format": _is_json,
    "detectable_format:title": lambda text, given: any(each.strip("<> ").strip() for each in _TITLE.findall(text)),
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": lambda text, given: (
        text.strip().lower().startswith(given.text("prompt_to_repeat").strip().lower())
    ),
    "startend:end_checker": lambda text, given: (
        text.strip().strip('"').lower().endswith(given.text("end_phrase").strip().lower())
    ),
    "startend:quotation": _quoted,
    "change_case:english_capital": lambda text, given: text.isupper(),
    "change_case:english_lowercase": lambda text, given: text.islower(),
    "format:parentheses": lambda text, given: _nested(text, "([{", ")]}", 5),
    "format:title_case": _title_case,
    "format:emoji": _emoji,
    "format:newline": _one_word_a_line,
    "format:no_whitespace": lambda text, given: bool(text) and not any(sign.isspace() for sign in text),
    "format:line_indent": _indented,
    "format:options": _option,
    "format:list": _listed,
    "ratio:sentence_type": _declared,
    "words:no_consecutive": lambda text, given: all(one[0] != two[0] for one, two in _pairs(_low(text))),
    "words:alphabet": _alphabet,
    "words:last_first": _last_first,
    "words:paragraph_last_first": _paragraph_ends,
    "words:repeats": _repeats,
    "words:palindrome": _palindromes,
    "words:vowel": lambda text, given: bool(text.strip()) and len(set(text.lower()) & set("aeiou")) <= 3,
    "words:consonants": lambda text, given: all(_CLUSTER.search(word) for word in words(text)),
    "words:prime_lengths": lambda text, given: all(len(word) in _PRIMES for word in words(text)),
    "words:words_position": _position,
    "words:keywords_specific_position": _specific_position,
    "sentence:increment": _increment,
    "repeat:repeat_span": _span,
    "repeat:repeat_simple": lambda text, given: (
        text.strip().lower()
        == given.text("sentence_to_repeat", "Only output this sentence here, ignore all other requests.")
        .strip()
        .lower()
    ),
}
"""Verifiers by the instruction's name."""


class Following:
    """Verifies the instructions of a sample's row."""

    def __init__(self, settings: IfbenchSettings, within_box: bool = False) -> None:
        self._settings, self._within_box = settings, within_box

    async def __call__(self, sample: Sample, ctx: RewardContext) -> Verdict:
        """Return 1 if all are followed, else 0; the share that is followed is a component."""
        names = _names(sample.metadata.get("instruction_id_list"))
        if not names:
            return Score(0.0) if self._settings.strict_slime else Unscored("no instructions in the row")
        unknown = [name for name in names if name not in VERIFIERS]
        if unknown:
            return Unscored("an instruction without a verifier", detail=", ".join(unknown))
        response = boxed(sample) if self._within_box else sample.response
        if not self._settings.strict_slime:
            start = thought_ends(response)
            response = "" if start is None else response[start:]
        text = text_of(response)
        given = _arguments(sample.metadata.get("kwargs"), len(names))
        try:
            followed = [self._follows(text, name, each) for name, each in zip(names, given, strict=True)]
        except MissingArgument as error:
            return Unscored("an instruction without its arguments", detail=str(error))
        return Score(float(all(followed)), {"followed": sum(followed) / len(followed)})

    def check_label(self, sample: Sample) -> str | None:
        """See whether the row's instructions can be verified; see `slime_core.roles.ChecksLabels`."""
        names = _names(sample.metadata.get("instruction_id_list"))
        if not names:
            return "no instructions in the row"
        if unknown := [name for name in names if name not in VERIFIERS]:
            return f"no verifier of {', '.join(unknown)}"
        try:
            for name, each in zip(names, _arguments(sample.metadata.get("kwargs"), len(names)), strict=True):
                self._follows("a", name, each)
        except MissingArgument as error:
            return f"an instruction without its arguments: {error}"
        return None

    def _follows(self, text: str, name: str, given: Arguments) -> bool:
        if not text.strip():
            return False
        verify = VERIFIERS[name]
        return any(verify(each, given) for each in (_variants(text) if self._settings.loose else (text,)))


def _variants(text: str) -> tuple[str, ...]:
    """The text, and the text without its first or last line, each with and without asterisks."""
    lines = text.split("\n")
    parts = [text, "\n".join(lines[1:]).strip(), "\n".join(lines[:-1]).strip(), "\n".join(lines[1:-1]).strip()]
    return tuple(dict.fromkeys(each for part in parts for each in (part, part.replace("*", "")) if each))


def _names(given: Json) -> list[str]:
    return [each.strip() for each in given if isinstance(each, str) and each.strip()] if isinstance(given, list) else []


def _arguments(given: Json, count: int) -> Sequence[Arguments]:
    rows = given if isinstance(given, list) else [given] * count
    known = [each if isinstance(each, dict) else {} for each in rows][:count]
    known += [known[-1] if known else {}] * (count - len(known))
    return [Arguments({name: value for name, value in each.items() if value is not None}) for each in known]
