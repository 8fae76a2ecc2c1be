"""A fake environment with a release of SGLang or of a router.

python = python_with(tmp_path, "0.5.23")        # an empty executable file next to site-packages
"""

from pathlib import Path


def python_with(folder: Path, version: str | None, program: str = "sglang") -> Path:
    """The Python of a fake environment; `version` None: without the program."""
    packages = folder / "lib/python3.11/site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    (folder / "pyvenv.cfg").touch()
    if version is not None:
        (packages / f"{program}-{version}.dist-info").mkdir(exist_ok=True)
    python = folder / "bin/python"
    python.parent.mkdir(exist_ok=True)
    python.touch(0o755)
    return python
