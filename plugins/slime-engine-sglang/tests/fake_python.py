"""An environment with a release of SGLang, or of a router, as far as can be seen from outside.

python = python_with(tmp_path, "0.5.23")        # an empty file that may be run, beside its site-packages
"""

from pathlib import Path


def python_with(folder: Path, version: str | None, program: str = "sglang") -> Path:
    """Its Python; None: without the program."""
    packages = folder / "lib/python3.11/site-packages"
    packages.mkdir(parents=True, exist_ok=True)
    (folder / "pyvenv.cfg").touch()
    if version is not None:
        (packages / f"{program}-{version}.dist-info").mkdir(exist_ok=True)
    python = folder / "bin/python"
    python.parent.mkdir(exist_ok=True)
    python.touch(0o755)
    return python
