"""The check of words finds each construction in pages, docstrings, comments and messages, and reads its exceptions."""

from pathlib import Path

from tests.tables import table
from tests.tools.repository import run_tool, write

EXCEPTION = '[[exception]]\nplace = "slime_core/a.py"\ntext = "Whoever"\nreason = "a quotation"\n'
PLAIN = "every sentence is in plain words, where a pattern can see it\n"


@table(
    "words",
    (
        "whoever",
        "wherever",
        "nobody",
        "anew",
        "beside",
        "besides",
        "is told",
        "says of",
        "of its own",
        "those that",
        "that of",
        "by turns",
        "is to be",
        "gives up",
    ),
)
def test_each_construction_is_found_in_pages_and_modules(tmp_path: Path, words: str) -> None:
    sentence = f"A plan lists {words} it needs."
    module = f'"""{sentence}"""\n\n# {sentence}\nERROR = f"{{1}}: {sentence}"\n'
    write(
        tmp_path,
        {"docs/page.md": f"# A page\n\n{sentence}\n", "slime_core/a.py": module, "tools/words.toml": "exception = []"},
    )
    done = run_tool("check_words.py", "--root", tmp_path)
    assert done.returncode == 1, done.stdout
    places = [line.partition(": ")[0] for line in done.stdout.splitlines()]
    assert places == ["docs/page.md:3", "slime_core/a.py:1", "slime_core/a.py:4", "slime_core/a.py:3"]
    assert all(f"`{words}` in `" in line for line in done.stdout.splitlines())


@table(
    "text",
    (
        "A plan lists keys.",
        "```\nnobody\n```",
        "    ```text\n    nobody\n    ```",
        '`nobody` and "whoever" are quoted',
        "[a link](whoever.md#beside)",
        "<!-- nobody -->",
    ),
)
def test_code_quotations_and_targets_of_links_are_no_sentences(tmp_path: Path, text: str) -> None:
    write(tmp_path, {"docs/page.md": text, "slime_core/a.py": 'KEY = "beside"\n', "tools/words.toml": "exception = []"})
    done = run_tool("check_words.py", "--root", tmp_path)
    assert (done.returncode, done.stdout) == (0, PLAIN)


def test_an_exception_covers_its_sentence_alone_and_has_to_cover_one(tmp_path: Path) -> None:
    files = {"slime_core/a.py": '"""Whoever reads this line."""\n', "tools/words.toml": EXCEPTION}
    write(tmp_path, files)
    assert run_tool("check_words.py", "--root", tmp_path).stdout == PLAIN
    write(tmp_path, {"slime_core/b.py": files["slime_core/a.py"]})
    assert run_tool("check_words.py", "--root", tmp_path).stdout.startswith("slime_core/b.py:1: `Whoever`")
    write(tmp_path, {"slime_core/a.py": '"""A reader."""\n', "slime_core/b.py": ""})
    done = run_tool("check_words.py", "--root", tmp_path)
    assert (done.returncode, done.stdout) == (
        1,
        "tools/words.toml: nothing in slime_core/a.py needs the exception 'Whoever'\n",
    )
