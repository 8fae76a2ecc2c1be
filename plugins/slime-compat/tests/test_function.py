"""load: reports mistakes before a run that slime reports in the middle of it."""

from pathlib import Path

import pytest

from slime_compat.function import load
from slime_core.errors import PluginError
from tests.tables import table

CALL = ("args", "sample")


def test_a_dotted_path_and_a_file_name_the_same_function(path: str) -> None:
    dotted = load(f"{path}custom_rm", CALL, is_async=True)
    file = Path(__file__).parent / "written_for_slime.py"
    assert load(f"{file}:custom_rm", CALL, is_async=True).__code__.co_code == dotted.__code__.co_code


@table(
    "name, message",
    [
        ("custom_rn", "has no 'custom_rn'. Did you mean 'custom_rm'"),
        ("rm_that_is_not_async", "must be `async def`: slime awaits it"),
        ("rm_of_three", r"cannot be called as slime does: f\(args, sample\)"),
        ("math", "is a module; expected a function"),
    ],
)
def test_uncallable_function_is_refused(path: str, name: str, message: str) -> None:
    with pytest.raises(PluginError, match=message):
        load(f"{path}{name}", CALL, is_async=True)


def test_missing_module_is_named() -> None:
    with pytest.raises(PluginError, match="No module named 'nowhere'"):
        load("nowhere.rm", CALL, is_async=True)
    with pytest.raises(PluginError, match=r"there is no file nowhere\.py"):
        load("nowhere.py:rm", CALL, is_async=True)


def test_missing_slime_module_lists_modules(path: str) -> None:
    load(f"{path}custom_rm", CALL, is_async=True)
    with pytest.raises(ModuleNotFoundError, match=r"slime-compat has no slime\.ray\. It has slime\.utils\.types"):
        __import__("slime.ray.rollout")
