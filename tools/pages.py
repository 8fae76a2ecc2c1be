"""Files that a tool writes from the code: compared with it, or with --write written.

if __name__ == "__main__":
    sys.exit(kept(PAGE, page()))
"""

import argparse
import difflib
import sys
from pathlib import Path


def kept(path: Path, text: str) -> int:
    """Compare a file with what it should hold, or write that if the command line says --write; the exit status."""
    parser = argparse.ArgumentParser(description=f"compares {path.name} with the code")
    parser.add_argument("--write", action="store_true", help=f"write {path.name} anew")
    if parser.parse_args().write:
        path.write_text(text, "utf-8")
        return 0
    difference = compared(path, text, f"tools/{Path(sys.argv[0]).name}")
    print(difference, end="")
    return 1 if difference else 0


def compared(path: Path, text: str, tool: str) -> str:
    """How a file differs from what it should hold, and what to type; empty if it does not."""
    found = path.read_text("utf-8") if path.exists() else ""
    if found == text:
        return ""
    lines = difflib.unified_diff(found.splitlines(), text.splitlines(), path.name, tool, n=1, lineterm="")
    return "\n".join([*lines, f"{path.name} is not what the code says: .venv/bin/python {tool} --write\n"])
