"""A commit's subject names the change in at most 72 characters: the hook that `pre-commit install` puts in place.

.venv/bin/python tools/commit_subject.py .git/COMMIT_EDITMSG       a message that is being written
.venv/bin/python tools/commit_subject.py origin/main..HEAD         the commits of a branch
"""

import subprocess
import sys
from pathlib import Path

MOST = 72
VAGUE = {"Say", "Tell", "Let", "Give", "Take", "Leave", "Have", "Hold", "Ask", "Look", "Put", "Mend"}
"""First words that do not name a change: "Say it within the line"."""
MADE_BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
"""How subjects begin that git writes itself."""


def main(what: str) -> int:
    """Print what is wrong with a message's file or the commits of a range, and return the exit status."""
    problems = [problem for subject in subjects(what) if (problem := fault(subject))]
    print("\n".join(problems), end="\n" if problems else "")
    return 1 if problems else 0


def subjects(what: str) -> list[str]:
    """The first lines of the messages that are meant."""
    if Path(what).is_file():
        lines = [line for line in Path(what).read_text("utf-8").splitlines() if not line.startswith("#")]
        return [next((line for line in lines if line.strip()), "")]
    done = subprocess.run(["git", "log", "--format=%s", what], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def fault(subject: str) -> str:
    """What is wrong with a subject; empty if nothing is."""
    if subject.startswith(MADE_BY_GIT):
        return ""
    if len(subject) > MOST:
        return f"{subject[:MOST]}|{subject[MOST:]}: {len(subject)} characters, at most {MOST}: say why in the body"
    if subject.partition(" ")[0] in VAGUE:
        return f"{subject}: say what changed for a user or a maintainer: Add, Refuse, Rename, Fix, Remove, Report ..."
    return f"{subject}: a subject has no full stop at its end" if subject.endswith(".") else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
