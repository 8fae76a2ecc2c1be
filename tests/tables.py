"""A table of rows is one test: every row runs, and the error names each row that failed.

    @table("text, wanted", [("1/2", True), ("", False)])
    def test_a_fraction_is_read(text: str, wanted: bool) -> None:
        assert is_fraction(text) is wanted

The test is skipped where each row skips. Fixtures are made once, not once a row: a test that needs a fresh one for each
row keeps `pytest.mark.parametrize`. Rows of an `async def` test have a loop each.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterable
from functools import wraps

import pytest


def table(names: str, rows: Iterable[object]) -> Callable[[Callable[..., object]], Callable[..., None]]:
    """Decorator: runs the test with each row's values under `names` and raises one AssertionError for all failures.

    `rows` are tuples, or single values where there is one name; `pytest.param` gives a row an id.
    """
    keys, table_rows = [name.strip() for name in names.split(",")], list(rows)
    assert table_rows, "a table without rows shows nothing"

    def decorate(test: Callable[..., object]) -> Callable[..., None]:
        signature = inspect.signature(test)
        fixtures = [each for name, each in signature.parameters.items() if name not in keys]

        @wraps(test)
        def run_rows(*args: object, **fixture_values: object) -> None:
            errors: list[tuple[str, BaseException]] = []
            skips: list[pytest.skip.Exception] = []
            for row in table_rows:
                label, values = _read_row(row, len(keys))
                try:
                    made = test(*args, **fixture_values, **dict(zip(keys, values, strict=True)))
                    if inspect.iscoroutine(made):
                        asyncio.run(made)
                except pytest.skip.Exception as skip:
                    skips.append(skip)
                except (Exception, pytest.fail.Exception) as error:
                    errors.append((label, error))
            if errors:
                lines = [f"{label}: {type(error).__name__}: {error}" for label, error in errors]
                message = f"{len(errors)} of {len(table_rows)} rows failed:\n" + "\n".join(lines)
                raise AssertionError(message) from errors[0][1]
            if len(skips) == len(table_rows):
                raise skips[0]

        run_rows.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run_rows

    return decorate


def _read_row(row: object, length: int) -> tuple[str, tuple[object, ...]]:
    name = getattr(row, "id", None) if hasattr(row, "marks") else None
    assert not getattr(row, "marks", ()), "a table runs all of its rows: a row has no marks"
    values = tuple(row.values) if hasattr(row, "marks") else row if length > 1 else (row,)  # type: ignore[attr-defined]
    return str(name or values)[:300], tuple(values)  # type: ignore[arg-type]
