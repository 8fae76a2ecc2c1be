"""The exception tree: one base, and it travels between processes."""

import inspect
from multiprocessing.reduction import ForkingPickler

from slime_core import errors
from tests.tables import table

ALL = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, Exception)]


@table("kind", ALL)
def test_every_error_is_ours_documented_and_crosses_a_process(kind: type[Exception]) -> None:
    assert issubclass(kind, errors.SlimeError)
    assert kind.__doc__
    assert kind.__name__ in (errors.__doc__ or "")
    again = ForkingPickler.loads(ForkingPickler.dumps(kind("what was tried")))
    assert type(again) is kind
    assert str(again) == "what was tried"


def test_what_a_plugins_error_says_is_short_and_never_fails() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert errors.error_text(ValueError("wrong")) == "wrong"
    assert errors.error_text(Mute()) == "(its text cannot be read: RuntimeError)"
    long = errors.error_text(ValueError(f"first{'x' * 100_000}last"))
    assert len(long) < 2 * errors.LONGEST_TEXT
    assert long.startswith("first")
    assert long.endswith("last")


@table("word", ["mth", "MATH", "maths", "math"])
def test_a_near_spelling_is_suggested(word: str) -> None:
    assert errors.did_you_mean(word, ["random", "math"]) == " Did you mean 'math'?"


def test_case_hyphens_and_underscores_do_not_count_until_names_differ_in_nothing_else() -> None:
    assert errors.did_you_mean("policy-loss", ["policy_loss", "sft_loss"]) == " Did you mean 'policy_loss'?"
    assert errors.did_you_mean("shrt", ["Short", "short"]) == " Did you mean 'short'?"
    assert errors.did_you_mean("math", []) == errors.did_you_mean("math", ["random"]) == ""
