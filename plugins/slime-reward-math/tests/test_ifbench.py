from collections.abc import Callable

from slime_core import Score, Unscored
from slime_reward_math.rewards.instructions import VERIFIERS, Arguments
from tests.tables import table

FOLLOWED = [
    ("keywords:existence", {"keywords": ["red", "fox"]}, "A red fox.", "A redfox."),
    ("keywords:frequency", {"keyword": "fox", "frequency": 2, "relation": "at least"}, "Fox and fox", "fox"),
    ("keywords:forbidden_words", {"forbidden_words": ["bad"]}, "badly good", "so bad"),
    ("keywords:letter_frequency", {"letter": "z", "let_frequency": 2, "let_relation": "less than"}, "z", "zz"),
    ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"}, "One. Two!", "One."),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a\n***\nb", "a"),
    ("length_constraints:number_words", {"num_words": "3", "relation": "less than"}, "one two", "one two three"),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "so"},
        "A b.\n\nSo c.",
        "So.\n\nA.",
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 1}, "Dear [name]", "Dear name"),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, "Bye. P.S. More.", "Bye."),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n* b", "* a"),
    ("detectable_format:constrained_response", {}, "My answer is yes.", "Yes."),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 1}, "a *b* c", "a b c"),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "SECTION", "num_sections": 2},
        "SECTION 1 a SECTION 2 b",
        "a",
    ),
    ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{a}"),
    ("detectable_format:title", {}, "<<Spring>> it is", "Spring"),
    ("combination:two_responses", {}, "a******b", "a******a"),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Why?"}, "Why? So.", "So."),
    ("startend:end_checker", {"end_phrase": "Amen."}, "x amen.", "x"),
    ("startend:quotation", {}, '"x"', "x"),
    ("change_case:english_capital", {}, "LOUD", "Loud"),
    ("change_case:english_lowercase", {}, "soft", "Soft"),
    ("change_case:capital_word_frequency", {"capital_frequency": 1, "capital_relation": "at least"}, "so LOUD", "so"),
    ("punctuation:no_comma", {}, "a b", "a, b"),
    ("count:word_count_range", {"min_words": 2, "max_words": 3}, "a b", "a"),
    ("count:unique_word_count", {"N": 2}, "a b a", "a a"),
    ("count:numbers", {"N": 2}, "1 and 2.5", "1"),
    ("count:conjunctions", {"small_n": 2}, "and but", "and and"),
    ("count:pronouns", {"N": 2}, "she and it", "she"),
    ("count:punctuation", {}, ".,!?;:", ".,"),
    ("sentence:keyword", {"word": "fox", "N": 2}, "A. The fox.", "The fox. A."),
    ("sentence:increment", {"small_n": 1}, "One. One two.", "One. One."),
    ("format:parentheses", {}, "([{([x])}])", "(x)"),
    ("format:title_case", {}, "The Art of War", "The art"),
    ("format:emoji", {}, "Good day. \U0001f600", "Good day."),
    ("format:newline", {}, "a\nb", "a b"),
    ("format:no_whitespace", {}, "ab", "a b"),
    ("format:line_indent", {}, "a\n b\n  c", "a\nb"),
    ("format:options", {"options": "yes/no"}, "Yes.", "maybe"),
    ("format:list", {"sep": "..."}, "...a\n...b", "a"),
    ("ratio:sentence_type", {}, "A. B. C?", "A. C?"),
    ("words:no_consecutive", {}, "one two", "one only"),
    ("words:alphabet", {}, "all bears can", "all cats"),
    ("words:last_first", {}, "A fox. Fox runs.", "A fox. A cat."),
    ("words:paragraph_last_first", {}, "fox is a fox", "fox is"),
    ("words:repeats", {"small_n": 1}, "a b", "a a"),
    ("words:palindrome", {}, "level radar civic refer rotor kayak madam tenet sagas stats", "level"),
    ("words:vowel", {}, "a e i", "a e i o"),
    ("words:consonants", {}, "stop trip", "a"),
    ("words:prime_lengths", {}, "it was", "four"),
    ("words:words_position", {"keyword": "fox"}, "a fox is fox here", "fox a b c"),
    ("words:keywords_specific_position", {"keyword": "fox", "n": 1, "m": 2}, "The fox.", "Fox the."),
    ("repeat:repeat_span", {"prompt_to_repeat": "a b c d", "n_start": 1, "n_end": 3}, "b c", "a b"),
    ("repeat:repeat_simple", {"sentence_to_repeat": "Say this."}, "say this.", "no"),
]


def test_every_verifier_has_its_example() -> None:
    assert {each[0] for each in FOLLOWED} == set(VERIFIERS)


@table("name, given, good, bad", FOLLOWED)
def test_verifiers_accept_and_reject(name: str, given: dict[str, object], good: str, bad: str) -> None:
    assert VERIFIERS[name](good, Arguments(given))  # type: ignore[arg-type]
    assert not VERIFIERS[name](bad, Arguments(given))  # type: ignore[arg-type]


def row(*names: str, kwargs: object = None) -> dict[str, object]:
    return {"instruction_id_list": list(names), "kwargs": kwargs or [{} for _ in names]}


def test_all_instructions_must_be_followed(score: Callable[..., object]) -> None:
    both = row("punctuation:no_comma", "change_case:english_lowercase")
    assert score("ifbench", None, "soft words", metadata=both) == Score(1.0, {"followed": 1.0})
    assert score("ifbench", None, "Soft words", metadata=both) == Score(0.0, {"followed": 0.5})
    assert score("ifbench", None, "", metadata=both) == Score(0.0, {"followed": 0.0})


def test_thinking_is_not_part_of_the_response(score: Callable[..., object]) -> None:
    assert score("ifbench", None, "<think>a, b</think>c", metadata=row("punctuation:no_comma")) == Score(
        1.0, {"followed": 1.0}
    )


def test_unverifiable_instruction_is_unscored(score: Callable[..., object]) -> None:
    assert score("ifbench", None, "x", metadata=row("no:such")) == Unscored(
        "an instruction without a verifier", detail="no:such"
    )
    assert score("ifbench", None, "x") == Unscored("no instructions in the row")
    found = score("ifbench", None, "x", metadata=row("keywords:existence"))
    assert found == Unscored("an instruction without its arguments", detail="keywords")


def test_loose_ignores_a_first_line(score: Callable[..., object]) -> None:
    metadata = row("punctuation:no_comma")
    assert score("ifbench", None, "Sure, here:\nwords", metadata=metadata, loose=True) == Score(1.0, {"followed": 1.0})
    assert score("boxed_ifbench", None, r"a, b \boxed{c}", metadata=metadata) == Score(1.0, {"followed": 1.0})
