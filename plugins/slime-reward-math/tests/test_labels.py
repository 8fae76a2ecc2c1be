"""Gold answers as data sets publish them: right answers earn full marks, and no label is a silent 0.

The rows are made up in the shape of the ten data sets that RL runs use most, and a few more.
"""

import asyncio
from typing import cast

from slime_core import Sample, Score, Unscored, Verdict
from slime_core.roles import ChecksLabels, Reward, RewardContext, Settings, Setup
from slime_core.sample import Json
from slime_reward_math import plugin
from slime_reward_math.extract import gold_text
from tests.tables import table

CONTEXT = RewardContext(0, False, 0)
SPECS = {spec.name: spec for spec in plugin.slime_rewards()}
QUESTION = "A farmer has 3 barns with 24 cows in each of them, and sells a third of all the cows. How many are left?"
SOLUTION = "There are 3 barns with 24 cows each, so there are 72 cows in all of the barns of the farmer together"


def reward(name: str, **settings: object) -> Reward:
    spec = SPECS[name]

    def make(role: str, name: str, **settings: object) -> object:
        raise NotImplementedError

    model: type[Settings] = spec.model
    return cast(Reward, spec.factory(model.model_validate(settings), Setup(make, seed=0)))


def verdict(name: str, label: Json, response: str, **metadata: Json) -> Verdict:
    made = reward(name)
    return asyncio.run(made(Sample(label=label, response=response, metadata=metadata), CONTEXT))


def check(name: str, label: Json, metadata: dict[str, Json] | None = None, **settings: object) -> str | None:
    made = reward(name, **settings)
    assert isinstance(made, ChecksLabels)
    return made.check_label(Sample(label=label, metadata=metadata or {}))


SHAPES: list[tuple[str, str, Json, str, str]] = [
    ("GSM8K", "math", f"{SOLUTION} <<3*24=72>>.\n{SOLUTION}.\n#### 72", "72", "3"),
    ("GSM8K, thousands", "math", f"{SOLUTION}.\n#### 1,072", "1072", "1"),
    ("MATH, solution", "math", rf"{SOLUTION}, which is $\boxed{{\frac{{1}}{{2}}}}$.", "0.5", "2"),
    ("MATH, answer", "math", r"\left( 3, \frac{\pi}{2} \right)", r"(3, \pi/2)", r"(2, \pi)"),
    ("DAPO-Math-17k", "dapo", "34", "34", "35"),
    ("DAPO-Math-17k, JSON text", "math", '["34"]', "34", "35"),
    ("DeepScaleR", "deepscaler", r"\frac{7}{3}", "7/3", "3/7"),
    ("OpenR1-Math", "math", "v_{1}=4, v_{2}=6", "v_{1}=4, v_{2}=6", "v_{1}=6, v_{2}=4"),
    ("NuminaMath, a choice", "math", "C", "C", "D"),
    ("NuminaMath, an equation", "math", "x = 3", "3", "4"),
    ("Big-Math", "math", "10\\%", "10\\%", "20\\%"),
    ("ORZ", "math", "2\\sqrt{13}", "2\\sqrt{13}", "\\sqrt{13}"),
    ("AIME, a number", "math", 204, "204", "205"),
    ("AIME, leading zeros", "math", "025", "25", "24"),
    ("OlympiadBench, a list", "math", ["2", "4"], "4", "5"),
    ("MetaMathQA", "math", f"{SOLUTION}, and {SOLUTION}. The answer is: 110", "110", "72"),
    ("a solution that ends on a line", "math", f"{SOLUTION}.\n{SOLUTION}.\nAnswer: 110", "110", "72"),
    ("GPQA", "gpqa", "B", "Answer: B", "Answer: C"),
    ("MMLU, an index", "gpqa", 1, "Answer: B", "Answer: C"),
    ("SQuAD, texts", "f1", ["Denver Broncos", "The Broncos"], "Denver Broncos", "Carolina"),
    ("HotpotQA", "f1", "yes", "yes", "no"),
    ("DROP, a number", "f1", 12, "12", "13"),
]
FORMS = {"math": r"\boxed{{{}}}", "deepscaler": r"</think>\boxed{{{}}}", "dapo": "Answer: {}"}


def test_published_dataset_labels_are_accepted() -> None:
    wrong = []
    for source, name, label, right, other in SHAPES:
        form = FORMS.get(name, "{}")
        said, good, bad = check(name, label), verdict(name, label, form.format(right)), None
        bad = verdict(name, label, form.format(other))
        if said is not None or not isinstance(good, Score) or good.value != 1.0:
            wrong.append((source, said, good))
        if not isinstance(bad, Score) or bad.value >= 1.0:
            wrong.append((source, "a wrong answer", bad))
    assert not wrong


HOPELESS: list[tuple[str, str, Json]] = [
    ("NuminaMath, a proof", "math", "proof"),
    ("OpenR1-Math, without one", "math", "notfound"),
    ("an export of None", "math", "None"),
    ("the question's column", "math", QUESTION),
    ("a question with a formula", "math", "What is $3+1$?"),
    ("a solution without its answer", "math", f"{SOLUTION}, and {SOLUTION}"),
    ("verl's column, whole", "math", {"ground_truth": "34", "style": "rule"}),
    ("an empty text", "dapo", "  "),
    ("an empty list", "deepscaler", []),
    ("a truth value", "boxed_math", True),
    ("a box that does not close", "math", r"\boxed{\frac{1}{2}"),
    ("SQuAD's column, whole", "f1", {"text": ["Denver Broncos"], "answer_start": [177]}),
    ("nothing", "f1", ""),
    ("a choice that is none", "gpqa", "see the text"),
    ("an index past the end", "gpqa", 17),
    ("half an index", "gpqa", 1.5),
]


def test_unusable_labels_are_named_and_unscored() -> None:
    wrong = []
    for source, name, label in HOPELESS:
        given = FORMS.get(name, r"\boxed{{{}}}").format("34")
        said, found = check(name, label), verdict(name, label, given)
        if not said or not isinstance(found, Unscored):
            wrong.append((source, said, found))
    assert not wrong
    assert "is label_key the right column?" in (check("math", QUESTION) or "")


def test_letter_outside_the_choices_is_named() -> None:
    row: dict[str, Json] = {"choices": ["red", "green"], "correct_letter": "E"}
    assert check("gpqa", None, row) == "the label is not a choice: A, B"
    assert isinstance(verdict("gpqa", None, "Answer: A", **row), Unscored)
    assert check("gpqa", "green", {"choices": ["red", "green"]}) is None


def test_unverifiable_instructions_are_named() -> None:
    table: list[tuple[dict[str, Json], str | None]] = [
        ({"instruction_id_list": ["punctuation:no_comma"], "kwargs": [{}]}, None),
        ({"instruction_id_list": []}, "no instructions"),
        ({"instruction_id_list": ["nobody:knows"], "kwargs": [{}]}, "no verifier of nobody:knows"),
        ({"instruction_id_list": ["length_constraints:number_words"], "kwargs": [{}]}, "without its arguments"),
    ]
    found = [check("ifbench", None, row) for row, _ in table]
    assert [each is None for each in found] == [said is None for _, said in table]
    assert all(said in each for each, (_, said) in zip(found, table, strict=True) if each and said)


@table(
    "name, label, passes",
    [
        ("math", "72", True),
        ("math", f"{SOLUTION}.\n#### 72", False),
        ("dapo", "72", True),
        ("dapo", r"\frac{1}{2}", False),
        ("boxed_dapo", "72", True),
        ("deepscaler", "72", True),
    ],
)
def test_strict_slime_names_unreadable_labels(name: str, label: str, passes: bool) -> None:
    assert (check(name, label, strict_slime=True) is None) == passes


def test_markdown_headings_are_not_answers() -> None:
    assert gold_text("#### Step 1: add\n1 + 1") != "Step 1: add"
