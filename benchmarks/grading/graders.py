"""Graders to compare: ours, and published ones where they are installed or checked out.

Example:

    available(Checkouts(slime=Path("../slime")))      # {"ours": ..., "math-verify": ..., "slime math": ...}
"""

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

Grader = Callable[[str, str], bool]
"""Whether a response is paid for a gold answer."""


@dataclass(frozen=True, slots=True)
class Checkouts:
    """Source trees of graders that are not packages."""

    slime: Path | None = None
    """A checkout of slime."""
    verl: Path | None = None
    """A checkout of verl."""
    qwen: Path | None = None
    """A checkout of Qwen2.5-Math."""


def available(checkouts: Checkouts) -> dict[str, Grader]:
    """Every grader that can be imported here, ours first."""
    makers: dict[str, Callable[[], Grader]] = {
        "ours": _ours,
        "math-verify": _math_verify,
        "lighteval": _lighteval,
        "slime math": lambda: _slime(checkouts.slime),
        "verl prime": lambda: _verl(checkouts.verl),
        "Qwen2.5-Math": lambda: _qwen(checkouts.qwen),
    }
    found: dict[str, Grader] = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except (ImportError, FileNotFoundError) as error:
            print(f"{name}: not here ({error})", file=sys.stderr)
    return found


def forget() -> None:
    """Empty our memos, and SymPy's, which other graders stand on, so that every pair is graded cold."""
    from slime_reward_math import grader

    grader.forget()
    if "sympy" in sys.modules:
        importlib.import_module("sympy.core.cache").clear_cache()


def _ours() -> Grader:
    from slime_reward_math import grade

    return lambda gold, response: grade(gold, response).correct


def _math_verify() -> Grader:
    library = importlib.import_module("math_verify")
    parse, verify = library.parse, library.verify
    # The gold is given as a formula, which is how its own evaluation gives it.
    return lambda gold, response: bool(verify(parse(_formula(gold)), parse(response)))


def _formula(gold: str) -> str:
    return gold if "$" in gold or "\\boxed" in gold else f"${gold}$"


def _lighteval() -> Grader:
    metrics = importlib.import_module("lighteval.metrics.utils.extractive_match_utils")
    compare = importlib.import_module("lighteval.metrics.utils.math_comparison").compare_gold_target
    language = importlib.import_module("lighteval.utils.language").Language.ENGLISH
    latex, expression = metrics.LatexExtractionConfig(), metrics.ExprExtractionConfig()
    regexes = metrics.get_extraction_regexes_inspect([latex, expression], language)

    def graded(gold: str, response: str) -> bool:
        golds = metrics.extract_target_from_pred(_formula(gold), regexes)
        return bool(compare(golds, metrics.extract_target_from_pred(response, regexes), 6))

    return graded


def _slime(root: Path | None) -> Grader:
    module = _by_file(root, "slime/rollout/rm_hub/math_utils.py", "slime_math_utils")
    return lambda gold, response: bool(module.grade_answer_verl(response, gold))


def _verl(root: Path | None) -> Grader:
    if root is None:
        raise FileNotFoundError("no checkout was named")
    sys.path.insert(0, str(root))
    module = importlib.import_module("verl.utils.reward_score.prime_math")
    return lambda gold, response: bool(module.compute_score(response, gold)[0])


def _qwen(root: Path | None) -> Grader:
    if root is None:
        raise FileNotFoundError("no checkout was named")
    sys.path.insert(0, str(root / "evaluation"))
    grader, parser = importlib.import_module("grader"), importlib.import_module("parser")
    return lambda gold, response: bool(
        grader.math_equal(parser.extract_answer(response, "math"), parser.strip_string(gold), timeout=True)
    )


def _by_file(root: Path | None, relative: str, name: str) -> types.ModuleType:
    if root is None:
        raise FileNotFoundError("no checkout was named")
    spec = importlib.util.spec_from_file_location(name, root / relative)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(root / relative)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
