r"""The text after a box: whether it withdraws the box or states another answer; and answers stated without a box.

Example:

    later(". Scratch that, the answer is 7.").stated      # "7"
    stated("So the answer is $5$ apples.")      # Stated(r"5\text{ apples}", ".")
"""

import re
from typing import NamedTuple

from slime_reward_math.context.before import before_box, denied
from slime_reward_math.context.doubt import Heard, given_again, heard, restates, settles, turns_against
from slime_reward_math.tree import folded, listed, low_case

_LEAD = re.compile(
    r"(?:final answer|answer)(?:\*\*|__)?(?: (?:to|of|for) [^.:=\n]{1,80}?)?(?:\*\*|__)?(?: ?(?::|=|-(?= ))|"
    r"\s*\n+(?=[\d$\\-])| ?\b(?:is|equals|comes out (?:to|as)|would be|must be|should be)\b:?)(?:\*\*|__)?",
    re.IGNORECASE,
)
_VALUE_FIRST = re.compile(
    r"(?:^|(?<=[\n.:,;] )|\n|(?<=so )|(?<=[Hh]ence )|(?<=[Tt]hus )|(?<=[Tt]herefore "
    r"))[\s*_$]*([^\s*_$][^\n*_$]{0,60}?)[*_$]* (?:is|was) (?:indeed |thus |therefore |clearly |our |the )*"
    r"(?:final |correct |right |required |desired )*answer\b(?! (?:to|if|when|for)\b)",
    re.IGNORECASE,
)
"""A value before the word for it: `64 is the answer`."""
_CUT = re.compile(
    r"[;—]| - |,? \((?:see|as|from|by|since|because|check)\b|,? \(?(?:because|since|so|which|where|therefore|thus|"
    r"hence|as (?:we|it|the|required|desired|shown|calculated|computed)|by (?:the|adding|sub\w+|multi\w+|div\w+)|using|"
    r"found by)\b|,? (?:and not|but not|not|rather than|instead of|as opposed to)(?= \$?-?[\d\\])"
)
_NOT_BUT = re.compile(r"\s*(?:not|neither) [^,.;\n]{1,30}?,? but (?:rather |actually |instead )?")
"""The rejected value before an answer: `not 30 but 31`."""
_END = re.compile(r"(?<!i\.e)(?<!e\.g)[.!](?=\s|$)|\n|\?")
_PIECE = re.compile(r"\$\$?(.+?)\$\$?|\\\((.+?)\\\)|\\\[(.+?)\\\]", re.DOTALL)


class Stated(NamedTuple):
    """An answer that a sentence states."""

    text: str | None
    """The answer; None if the sentence denies it, or is a question."""
    after: str
    """The text behind it."""


def stated(response: str, start: int) -> Stated | None:
    """The last answer that the text from `start` on states in words; None without one."""
    found = list(_LEAD.finditer(response, start))
    if not found:
        said = list(_VALUE_FIRST.finditer(response, start))
        return Stated(said[-1][1].strip(), response[said[-1].end() :]) if said else None
    match = found[-1]
    if denied(before_box(response, start, match.start()) + " " + match[0].strip(" :*=")):
        return Stated(None, "")
    place = match.end()
    while place < len(response) and response[place] in " \n\t*_:":
        place += 1
    end = _END.search(_hidden(response, place))
    stop = place + end.start() if end is not None else len(response)
    supposed = (
        match[0].lower().endswith("would be") and re.search(r"\b(?:if|unless|had)\b", response[place:stop]) is not None
    )
    asked = supposed or (end is not None and end[0] == "?")
    text = response[place:stop]
    text = text[set_against.end() :] if (set_against := _NOT_BUT.match(text)) is not None else text
    cut = _CUT.search(_hidden(text, 0))
    text = (text[: cut.start()] if cut else text).replace("**", "").strip(" *_`,")
    return Stated(None if asked or not text else _written(text), response[stop:])


def _hidden(text: str, start: int) -> str:
    """The text with its formulas blanked out, so that their stops and commas are not seen."""
    return _PIECE.sub(lambda match: "x" * len(match[0]), text[start:])


def _written(text: str) -> str:
    r"""Prose with formulas as an answer: words in `\text{}`; plain prose as it is."""
    pieces: list[str] = []
    place = 0
    for match in _PIECE.finditer(text):
        words = text[place : match.start()]
        pieces += [f"\\text{{{words}}}" if words.strip(" ,") else words, next(each for each in match.groups() if each)]
        place = match.end()
    if not pieces:
        return text
    rest = text[place:]
    return "".join([*pieces, f"\\text{{{rest}}}" if rest.strip(" ,.") else ""]).strip()


TAKEN_BACK = "the box is taken back"
"""The reason if a response withdraws the answer in its box."""
REACH, TAIL = 200, 160
"""Characters behind a box, and at the end of the response, that are searched."""
CHANGED = "(changed)"
"""Placeholder for a later answer that is relative to the box: `twice that`."""
_BACK = folded(
    r"\b(?:scratch that|just kidding|kidding|not sure which|unsure which|can't decide|cannot decide|don't know which|"
    r"never ?mind|oops|whoops|correction:|strike that|disregard|on second thoughts?|I (?:made|did make|have made|must "
    r"have made|think I made) (?:an? |some )?(?:\w+ )?(?:mistake|error|slip|typo|blunder)|I was wrong|I am wrong|I'm "
    r"wrong|(?:that|this|it|which|the (?:answer|above|value|result|box|last step|boxed answer|boxed value))(?:'s| is| "
    r"was| seems| looks| must be| cannot be| can't be| isn't| wasn't) (?:(?!not\b|never\b|if\b)\w+ )?(?:wrong(?! to\b)|"
    r"incorrect|not right|not correct|not the (?:final |correct |right |actual )?answer|not (?:what|yet|it\b|the one)|"
    r"mistaken|a mistake|an error|false|impossible(?! to\b)|too (?:big|small|large|high|low)|off by|only (?:half|part|"
    r"an? )|right\b(?<=n't right)|the answer\b(?<=n't the answer))|(?:my|the|this|above|that) (?:\w+ )?(?:answer|"
    r"solution|result|calculation|computation|box|reasoning|work) (?:\w+ )?(?:is|was) (?:\w+ )?(?:wrong|incorrect|not "
    r"(?:right|correct|valid)|flawed|mistaken)|I (?:misread|miscalculated|miscounted|forgot|overlooked|misinterpreted|"
    r"mistyped|misplaced|missed|swapped|double[- ]counted|overcounted|undercounted|mixed up|messed up)|(?:ignore|"
    r"discard|forget) (?:that|the above|this|it)|let me (?:redo|retry|start over|correct|fix|reconsider|recompute|"
    r"recalculate|recount|try again|rethink|change)|I take (?:that|it|this) back|I (?:retract|withdraw)|(?:this|that|"
    r"it) (?:does not|doesn't|cannot|can't|fails to) (?:work|satisfy|hold|be (?:right|correct|true))|(?:that|this) "
    r"contradicts|(?:we|I|you)(?: still| then| now| must| also)* (?:need|have|has) to (?:add|subtract|multiply|divide|"
    r"double|halve|square)|(?:then|now|next|finally),? (?:we |I |you )?(?:add|subtract|multiply|divide|double|halve|"
    r"square|round)\b)"
)
_NAME = (
    r"(?:answer(?: key)?(?: (?:to|of|for|here|in|then)\b[^.:=\n]{0,60}?)?|"
    r"(?:true|actual|correct|right|real|proper|exact|final|corrected) (?:value|result|number|total|count|solution|sum|"
    r"one|figure|probability|area)(?: \w+){0,4}?)"
)
_STATED = folded(
    rf"(?:\b{_NAME}(?:\*\*|_)? ?(?:is|was|=|:|should be|should have been|must be|would be|becomes|has to be|comes to|"
    rf"turns out to be|equals)(?:\*\*)?|"
    r"\b(?:it|that|this|which) (?:should|must|ought to|has to) (?:actually |really |rather |in fact )?(?:be|have been|"
    r"read|say|equal|give|come to)|\b(?:actually|in fact|really|rather|no|nope|wait|oops|sorry|correction|hmm|but|"
    r"instead|I mean|better)[,.:—-]* (?:(?:no|wait|actually|rather|I mean|sorry|make that|make it|I think|I believe|"
    r"really)[,.:]? ){0,3}(?:(?:it|this|that|the \w+)(?:'s| is| was| should be| equals| must be)(?: really| actually| "
    r"in fact| just)?)?)[:\s]*"
)
_AT_ONCE = re.compile(
    r"[\s$)\]*.!;:,—-]*(?:(?:wrong|incorrect|false|nope|not really|not quite|a contradiction|contradiction|an "
    r"impossibility|which is absurd|absurd|invalid|rejected|impossible|[✗✘❌✖])(?=\s*(?:$|[.,;:!)])))",
    re.IGNORECASE,
)
_OR = re.compile(
    r"[\s$)\]*]*[(,]? ?(?:or|=|i\.e\.,?|that is,?|namely)[, ]*(?:equivalently,? |simply |just |rather |"
    r"in other words,? )?"
)
_OR_ENDS = re.compile(r"\s*\$?\s*(?:[.,;!?)]|$|if\b|when\b|otherwise|depending)")
_TOTAL = re.compile(
    r"\b(?:so|for|giving|making|thus|hence)(?: there (?:are|"
    r"is))?(?: a total of)? \$?(\d+)\$?(?: \w+){0,2}? (?:in total|altogether|in all|total)\b"
)
_AFTERWARDS = re.compile(
    r"(?:\$([^$\n]{1,80})\$|(?<![\w.$])(-?\d+(?:\.\d+)?))\s*(?:is|was) (?:indeed |really |actually |thus |"
    r"therefore )?the (?:final |correct |right |true |actual |real |required )*answer"
)
_NUMBER = r"[-−+]?\$?\d+(?:,\d{3})*(?:\.\d+)?(?:/\d+)?(?:\s?\\?%)?"
_VALUE = re.compile(
    rf"(?:\*\*|`|\\\$|\s)*(?:\$\$?\s*([^$\n]{{1,120}}?)\s*\$|\\[(\[]\s*(.{{1,120}}?)\s*\\[)\]]|({_NUMBER}(?:(?:,| and|"
    rf" or|, and) {_NUMBER})*)(?![\w^_\\])|(\\[dt]?frac\{{[^{{}}]{{1,30}}\}}\{{[^{{}}]{{1,30}}\}}))",
    re.DOTALL,
)
_SPELLED = re.compile(
    r"(?:\*\*|\s)*((?:minus |negative )?(?:zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|"
    r"thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty|thirty|forty|fifty|sixty|seventy|eighty|"
    r"ninety|hundred)(?:-\w+)?)\b(?! (?:of|more|less|that|which|way|thing|who|with|whose|where|in))",
    re.IGNORECASE,
)
_RELATIVE = re.compile(
    r"(?:\*\*|\s)*(?:(?:somewhat|slightly|much|far|a bit|a little|probably|actually|even|really|strictly|likely|"
    r"certainly) )*(?:twice|double|half|triple|thrice|(?:one|two|three|four|five|\d+|a bit|slightly|much) (?:more|less|"
    r"fewer|greater|smaller|larger|times)\b|not\b(?! (?:un|sur|dif|too))|that (?:plus|minus|times|divided|squared|"
    r"doubled|multiplied)|this (?:plus|minus|times)|its (?:square|double|half|negative|reciprocal|opposite)|the "
    r"(?:square|double|negative|reciprocal|opposite|inverse|complement|cube|half) of|different|another|something else|"
    r"larger|smaller|bigger|higher|lower|unknown|impossible|(?:\w+ )?(?:times|plus|minus) (?:that|this|it)|\d+ (?:plus|"
    r"minus|times)|wrong|incorrect|none)\b",
    re.IGNORECASE,
)
_SUPPOSED = re.compile(r"(?i)\b(?:if|otherwise|without|had|unless)\b")
_GOES_ON = re.compile(r"\s*(?!\*\*)[-+*/=×][^.,;\n]{1,40}")
_DENIALS = frozenset({"\\text{no}", "\\text{false}"})
"""A word that is stated behind a box with a value: `Actually no`."""
_PROPER = re.compile(r"[\s*]*((?!I\b|A\b)[A-Z][a-z]+|yes|no|true|false)[\s*]*(?=[.,;!]|$)")
_LETTER = re.compile(r"(?:[\s*_($]|\\text\{|\\\()*(?:option |choice )?\(?([A-J])\b[)\s*_}$\\]*(?=[.,;!:]|$)")
"""A choice that is stated: `the answer is B`."""
_MORE = re.compile(r"\s*(?:more|less|fewer|times|plus|minus) (?:than|that|this|it|as)\b|\s*times (?:that|this|it)\b")
_TRIGGERS = listed(
    """answer should must ought actually actual scratch oops whoops correct correction strike disregard thoughts mistake
    error slip typo blunder wrong no nope wait sorry hmm rather but really nevermind never misread miscalculated
    miscounted forgot overlooked misinterpreted mistyped misplaced missed swapped overcounted undercounted
    double-counted mixed messed ignore discard forget redo retry reconsider recompute recalculate recount rethink total
    altogether kidding unsure decide retract withdraw cannot fails contradicts add subtract multiply divide double halve
    instead mean true right incorrect flawed too false off answer's impossible not hold hang hm however unfortunately
    though although except only still alas yet sadly edit update reflection second bad apologies apologize apologise
    catch bug flaw flaws oversight glitch errors mistakes slips typos neither doubt question problem prompt task again
    fix fixing start abandon undo scrap change changing withdrawing would what twice counts counted leaves left makes
    half partial backwards nonsense absurd suspicious part previous placeholder guess mis- then better meant without
    none missing unlikely get got neglected botched erred confused stand inconsistent look trust uh oh darn damn ah i'm
    drop take taking back spurious unacceptable inadmissible incompatible unjustified unproven unsupported implausible
    nonsensical bogus garbage rubbish questionable dubious unreasonable extraneous incomplete unfinished assuming before
    """
)
"""Words needed to withdraw or restate an answer: most texts behind a box have none, and are not searched."""
_STEMS = tuple(
    listed(
        """re mis over under contradict violat conflict disagree double halv correct omit neglect ignor ask forg los
    skip drop incons inval errat apolog hmm oops whoops fail doubl adjust amend"""
    )
)
_SENTENCE = re.compile(r"(\?|[!?;](?=\s)|\.+\s+(?!\d)|…|\n+)")
_WORD = re.compile(r"[a-z'’-]+")
_FRAME = " \n\t$)]\\.*_}"
_ABOUT_IT = re.compile(r"\b(?:right|correct|true|sure|really|wait|it\?|this\?|that\?)(?!\w)", re.IGNORECASE)


class Later(NamedTuple):
    """Result of the text behind a box."""

    stated: str | None
    """The last answer that is stated in words; None without one."""
    back: bool
    """Whether the box is taken back or doubted, without a later statement."""


NOTHING = Later(None, False)


def later(after: str, box: str = "") -> Later:
    """Whether the text behind a box withdraws its answer, or states another one."""
    text = after if len(after) <= REACH + TAIL else f"{after[:REACH]}\n{after[-TAIL:]}"
    if not text.strip(_FRAME):
        return NOTHING
    opening = text[:60]
    if _AT_ONCE.match(opening):
        return Later(None, True)
    same = _other(text)
    if same is not None:
        # The text behind the alternative form may still take both back.
        rest = later(text[same[1] :], box)
        return rest if rest.back or rest.stated is not None else Later(same[0], False)
    stated: str | None = None
    said = Heard.NOTHING
    parts = _SENTENCE.split(text)
    asked = False
    if turns_against(parts[0]):
        said = Heard.DOUBTED
    for sentence, stop in zip(parts[::2], [*parts[1::2], ""], strict=True):
        if not (said is not Heard.NOTHING or _may_take_back(sentence)):
            if sentence.rstrip(_FRAME)[-1:].isdigit() and not stop.startswith("?"):
                stated = given_again(sentence.strip(" ."), box) or stated
            asked = asked_of_others(sentence, stop)
            continue
        found = statements(sentence)
        backs = [match.end() for match in _BACK.finditer(low_case(sentence)) if not _quoted(sentence, match.start())]
        if found and found[-1][1].casefold() in _DENIALS and not box.isalpha() and "text" not in box:
            found, backs = [], [len(sentence)]
        if found:
            stated, said = found[-1][1], Heard.NOTHING
        if backs and (not found or found[-1][0] < backs[-1]):
            said = Heard.SETTLED if restates(sentence[backs[-1] :], box) else Heard.BACK
        elif not found:
            sentence = sentence.strip(" .")
            if not stop.startswith("?") and (other := given_again(sentence, box)) is not None:
                stated = other
            now = heard(sentence, box, asked, asked_of_others(sentence, stop))
            if now is Heard.SETTLED:
                said = Heard.NOTHING if said is not Heard.BACK or settles(sentence, box) else said
            elif now is not Heard.NOTHING and said is not Heard.BACK:
                said = now
        asked = asked_of_others(sentence, stop)
    return Later(stated, said in (Heard.BACK, Heard.DOUBTED))


def asked_of_others(sentence: str, stop: str) -> bool:
    """Whether a sentence is a question about anything but the answer's correctness: `Can it be larger?`."""
    return stop.startswith("?") and _ABOUT_IT.search(f"{sentence}?") is None


def _may_take_back(text: str) -> bool:
    words = _WORD.findall(text.lower())
    return (
        not _TRIGGERS.isdisjoint(words)
        or any(word.startswith(_STEMS) for word in words)
        or "n't" in text
        or "n’t" in text
    )


def _whole(value: re.Match[str], rest: str) -> str:
    """A value that is stated, with the calculation that it opens: `1+2=3`."""
    goes_on = _GOES_ON.match(rest, value.end())
    text = next(group for group in value.groups() if group is not None)
    return text + goes_on[0] if goes_on is not None and value[3] else text


def _other(text: str) -> tuple[str, int] | None:
    """An alternative form right behind the box, which must be equal, and its end: `or 50%`."""
    lead = _OR.match(text)
    value = _VALUE.match(text, lead.end()) if lead is not None else None
    if value is None or not _OR_ENDS.match(text, value.end()):
        return None
    return next(group for group in value.groups() if group is not None), value.end()


def _quoted(text: str, place: int) -> bool:
    """Whether a denial is only about a case: `if x = 2, this is impossible`."""
    return (
        re.search(
            r"\b(?:if|otherwise|for any|other|suppose|unless|whether|not|nothing|naive|naively|would|claim|common|"
            r"another)\b",
            text[:place].lower(),
        )
        is not None
    )


def statements(text: str) -> list[tuple[int, str]]:
    """The answers that a text states, with the places where they end."""
    found: list[tuple[int, str]] = []
    for match in _STATED.finditer(low_case(text)):
        if "would" in match[0] and _SUPPOSED.search(text) is not None:
            continue
        rest = text[match.end() : match.end() + 160]
        value = _VALUE.match(rest)
        if _RELATIVE.match(rest) or (value is not None and _MORE.match(rest, value.end())):
            weak = (
                match[0]
                .lower()
                .startswith(("but", "no", "really", "in fact", "instead", "rather", "actually", "better", "wait"))
            )
            if not weak:
                found.append((match.end(), CHANGED))
        elif value is not None:
            found.append((match.end() + value.end(), _whole(value, rest)))
        elif (name := _PROPER.match(rest)) is not None:
            found.append((match.end() + name.end(), f"\\text{{{name[1]}}}"))
        elif (letter := _LETTER.match(rest)) is not None and len(match[0]) > 4:
            found.append((match.end() + letter.end(), letter[1]))
        elif (spelled := _SPELLED.match(rest)) is not None:
            found.append((match.end() + spelled.end(), f"\\text{{{spelled[1]}}}"))
    found += [(match.end(), match[1]) for match in _TOTAL.finditer(text)]
    found += [(match.end(), match[1] or match[2]) for match in _AFTERWARDS.finditer(text)]
    return sorted(found)
