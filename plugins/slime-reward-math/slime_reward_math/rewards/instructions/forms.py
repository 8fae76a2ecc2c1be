"""Verifiers that look at the form of a response: case, sections, lists, quotes, JSON.

Example:

    FORMS["detectable_format:title"]("<<Spring>> ...", Arguments({}))      # True
"""

import itertools
import json
import re

from slime_reward_math.rewards.instructions.arguments import Arguments, Verifier
from slime_reward_math.rewards.instructions.counts import sentences, words

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


FORMS: dict[str, Verifier] = {
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
}
"""Verifiers by the instruction's name."""
