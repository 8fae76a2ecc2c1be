"""The digest of a plugin's code, by which a resume sees that files changed under the same version."""

from pathlib import Path

import pytest

from slime_core.config.plan import code_digest


def test_every_python_file_of_a_package_counts_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "letters_package" / "inner"
    inner.mkdir(parents=True)
    for file in (inner.parent / "__init__.py", inner / "__init__.py", inner / "deep.py"):
        file.write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    import letters_package.inner  # type: ignore[import-not-found]  # noqa: F401

    def digest() -> str:
        return code_digest(["letters_package.inner"])

    seen = [digest()]
    (inner / "deep.py").write_text("X = 1")
    seen.append(digest())
    (inner / "deep.py").rename(inner / "deeper.py")
    seen.append(digest())
    (inner / "data.txt").write_text("data")
    assert digest() == seen[-1]
    (inner.parent / "added.py").write_text("")
    seen.append(digest())
    assert len(set(seen)) == 4
    assert code_digest(["sys"]) == code_digest([]) == ""
