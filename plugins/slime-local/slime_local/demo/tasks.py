"""Procedural tasks with exact answers: sums ("chain"), GSM8K-shaped stories ("word"), sums of two numbers ("short").

Example:

    problems("word", seed=0, count=2, split="train")

All are chains of numbers, added and subtracted, never below zero on the way. Splits are disjoint by a checksum of the
expression, so no held-out expression is ever trained on.
"""

import random
import zlib
from dataclasses import dataclass

from slime_core.seeds import derive_seed

TERMS = {"chain": (3, 5), "word": (3, 5), "short": (2, 2)}
"""Task -> fewest and most numbers."""
LARGEST = {"chain": 9, "word": 9, "short": 12}
"""Task -> largest number; the smallest is 1."""
TASKS = tuple(TERMS)
NAMES = ["Tom", "Ana", "Sam", "Mia", "Leo", "Eva", "Ben", "Zoe"]
ITEMS = ["apples", "books", "coins", "cards", "pens", "eggs", "cups", "stamps"]
GAINS = ("{name} buys {n} more.", "{name} finds {n} more.", "A friend gives {name} {n}.", "{name} wins {n}.")
LOSSES = ("{name} loses {n}.", "{name} gives away {n}.", "{name} sells {n}.", "{n} of them break.")


@dataclass(frozen=True, slots=True)
class Problem:
    """One question with its worked solution."""

    question: str
    """The question."""
    answer: str
    """The number, as text."""
    trace: str
    """One line a step: 8+6=14."""
    expression: str
    """8+6-4: its checksum decides the split."""


def problems(task: str, seed: int, count: int, split: str) -> list[Problem]:
    """`count` problems of a split ("train" or "eval"), the same for the same seed.

    Raises:
        ValueError: no such task or split.
    """
    if task not in TASKS or split not in ("train", "eval"):
        raise ValueError(f"no task {task!r} with split {split!r}: tasks are {', '.join(TASKS)}; splits are train, eval")
    draw = random.Random(seed)
    found: list[Problem] = []
    while len(found) < count:
        problem = _problem(task, draw)
        if _split_of(problem.expression) == split:
            found.append(problem)
    return found


def _split_of(expression: str) -> str:
    return "eval" if zlib.crc32(expression.encode()) % 10 == 0 else "train"


def _problem(task: str, draw: random.Random) -> Problem:
    numbers, signs, totals = _chain(draw, *TERMS[task], LARGEST[task])
    terms = list(zip(signs, numbers[1:], strict=True))
    expression = str(numbers[0]) + "".join(f"{sign}{number}" for sign, number in terms)
    steps = zip(totals, terms, totals[1:], strict=False)
    trace = "\n".join(f"{before}{sign}{number}={after}" for before, (sign, number), after in steps)
    question = _story(draw, numbers[0], terms) if task == "word" else f"What is {expression}?"
    return Problem(question, str(totals[-1]), trace, expression)


def _chain(draw: random.Random, fewest: int, most: int, largest: int) -> tuple[list[int], list[str], list[int]]:
    length = draw.randint(fewest, most)
    while True:
        numbers = [draw.randint(1, largest) for _ in range(length)]
        signs = [draw.choice("+-") for _ in range(length - 1)]
        totals = [numbers[0]]
        for sign, number in zip(signs, numbers[1:], strict=True):
            totals.append(totals[-1] + number if sign == "+" else totals[-1] - number)
        if min(totals) >= 0:
            return numbers, signs, totals


def _story(draw: random.Random, first: int, terms: list[tuple[str, int]]) -> str:
    name, item = draw.choice(NAMES), draw.choice(ITEMS)
    sentences = [draw.choice(GAINS if sign == "+" else LOSSES).format(name=name, n=number) for sign, number in terms]
    return f"{name} has {first} {item}. {' '.join(sentences)} How many {item} does {name} have now?"


@dataclass(frozen=True, slots=True)
class WarmUp:
    """Length and learning rates of a warm start."""

    steps: int
    """Optimizer steps."""
    batch: int = 48
    """Solutions a step."""
    lr: float = 4e-3
    """Peak learning rate, decaying linearly to `min_lr`."""
    min_lr: float = 2e-4
    """Learning rate of the last step."""
    lr_warmup_iters: int = 30
    """Steps of linear warm-up."""
    worked_part: float = 0.88
    """Fraction of the steps with mostly worked solutions; bare answers dominate afterwards."""
    worked_share: float = 0.9
    """Share of worked solutions in the first part; 1 minus it in the second."""


RECIPES = {"chain": WarmUp(steps=400, lr=3e-3, min_lr=1.5e-4), "word": WarmUp(steps=480)}
"""Task -> recipe."""


def worked_response(problem: Problem) -> str:
    """The solution step by step, answer boxed."""
    return f"{problem.trace}\n{bare_response(problem)}"


def bare_response(problem: Problem) -> str:
    """The boxed answer alone."""
    return f"\\boxed{{{problem.answer}}}"


def solutions(task: str, seed: int, step: int, recipe: WarmUp) -> list[dict[str, str]]:
    """Questions and responses of one step, as rows to finetune on; a function of (task, seed, step) alone."""
    draw = random.Random(derive_seed(seed, "warm-up", task, step))
    worked = recipe.worked_share if step < recipe.worked_part * recipe.steps else 1 - recipe.worked_share
    rows = []
    for problem in problems(task, draw.getrandbits(32), recipe.batch, "train"):
        response = worked_response(problem) if draw.random() < worked else bare_response(problem)
        rows.append({"question": problem.question, "response": response})
    return rows
