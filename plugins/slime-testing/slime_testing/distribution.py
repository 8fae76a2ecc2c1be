"""Writes an installed distribution into a folder, without pip: what discovery sees is metadata on the import path.

write_distribution(tmp_path, "slime-reward-other", {"other.py": SOURCE}, entry_points={"reward-other": "other"})
monkeypatch.syspath_prepend(tmp_path)
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType


def write_distribution(
    folder: Path,
    name: str,
    files: Mapping[str, str],
    *,
    entry_points: Mapping[str, str],
    contracts: Mapping[str, str] = MappingProxyType({}),
    version: str = "1.0",
    requires: Sequence[str] = ("slime-core>=0.1,<0.2",),
    readme: str = "",
) -> None:
    """Write the files and the metadata of a distribution, as pip would have installed them.

    Args:
        folder: where; to be put on `sys.path`.
        name: the distribution's name.
        files: source text by path below the folder.
        entry_points: entry points of the group `slime.plugins`, name to `module` or `module:object`.
        contracts: entry points of the group `slime.contracts`, ROLE.NAME to `module:class`.
        version: the distribution's version.
        requires: its requirements.
        readme: its long description.
    """
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    lines = ["[slime.plugins]", *(f"{name} = {value}" for name, value in entry_points.items())]
    lines += ["[slime.contracts]", *(f"{name} = {value}" for name, value in contracts.items())]
    needs = "".join(f"Requires-Dist: {each}\n" for each in requires)
    written = {
        **{folder / path: text for path, text in files.items()},
        info / "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\n{readme}",
        info / "entry_points.txt": "\n".join([*lines, ""]),
    }
    for path, text in written.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
