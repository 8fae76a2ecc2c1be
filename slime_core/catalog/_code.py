"""What the Python files of loaded code are recognised by: an editable plugin changes without a new version.

Example:

    code_digest(["slime_local.plugin"])     # of every .py file in the folder of slime_local
"""

import hashlib
import sys
from collections.abc import Iterable
from pathlib import Path


def code_digest(modules: Iterable[str]) -> str:
    """The beginning of a SHA-256 of names and contents; empty where no file is found.

    Args:
        modules: loaded ones. Of one in a package, all files of the outermost package count.
    """
    digest, found = hashlib.sha256(), False
    for root, file in sorted({place for module in modules for place in _files(module)}):
        data = file.read_bytes()
        digest.update(f"{file.relative_to(root).as_posix()} {len(data)}\n".encode("utf-8", "surrogatepass") + data)
        found = True
    return f"sha256:{digest.hexdigest()[:12]}" if found else ""


def _files(module: str) -> list[tuple[Path, Path]]:
    """Files of the outermost package that is no namespace, each after the folder that its name starts from."""
    parts = module.split(".")
    for end in range(1, len(parts) + 1):
        file = getattr(sys.modules.get(".".join(parts[:end])), "__file__", None)
        if file is not None:
            path, root = Path(file), Path(file).parent
            return [(root, each) for each in root.rglob("*.py")] if path.name == "__init__.py" else [(root, path)]
    return []
