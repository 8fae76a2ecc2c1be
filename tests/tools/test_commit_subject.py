"""A commit's subject fits a line and names the change, as the hook of a checkout reads it."""

from pathlib import Path

from tests.tables import table
from tests.tools.repository import run_tool


@table(
    "message, status, said",
    [
        ("Refuse a duplicate reward name\n\nTwo plugins may each have one of that name.", 0, ""),
        (f"{'x' * 72}\n", 0, ""),
        ("# what git says of the commit\n\nRefuse a duplicate reward name\n", 0, ""),
        (f"Merge branch '{'x' * 72}'", 0, ""),
        (f"{'x' * 72}yz\n\nbody\n", 1, f"{'x' * 72}|yz: 74 characters, at most 72: say why in the body\n"),
        ("Say it within the line", 1, "Say it within the line: say what changed for a user or a maintainer"),
        ("Saying nothing is no verb of the list", 0, ""),
        ("Refuse a duplicate reward name.", 1, "Refuse a duplicate reward name.: a subject has no full stop"),
    ],
)
def test_a_subject_that_is_too_long_vague_or_a_sentence_is_refused(
    tmp_path: Path, message: str, status: int, said: str
) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    file.write_text(message)
    done = run_tool("commit_subject.py", file)
    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout.startswith(said)
    assert bool(done.stdout) == bool(status)
