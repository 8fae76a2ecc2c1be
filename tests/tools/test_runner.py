"""The runner of workflows on this machine: matrices, reusable workflows, actions, and what it refuses."""

from pathlib import Path
from subprocess import CompletedProcess

from tests.tables import table
from tests.tools.repository import run_tool, write

CALLED = """
on: {workflow_call: {inputs: {who: {type: string, required: true}, greetings: {type: string, default: '["hi", "ho"]'}}}}
jobs:
  greet:
    runs-on: ubuntu-latest
    strategy: {matrix: {greeting: "${{ fromJSON(inputs.greetings) }}"}}
    env: {GREETING: "${{ matrix.greeting }}"}
    steps:
      - run: echo "$GREETING ${{ inputs.who }}"
"""


def run(repository: Path, job: str, text: str, *argv: str) -> "CompletedProcess[str]":
    workflow = ".github/workflows/mine.yml"
    write(repository, {".github/workflows/called.yml": CALLED, workflow: f"on: push\njobs:\n{text}"})
    return run_tool("runner.py", workflow, job, "--repository", repository, *argv)


def calls(given: str) -> str:
    return f"  a:\n    uses: ./.github/workflows/called.yml\n    with: {{{given}}}\n"


def steps(*each: str) -> str:
    return "  a:\n    runs-on: ubuntu-latest\n    steps:\n" + "".join(f"      - {step}\n" for step in each)


def test_a_reusable_workflow_is_run_for_each_value_with_what_it_is_given(tmp_path: Path) -> None:
    done = run(tmp_path, "a", calls("who: '${{ vars.WHO }}'"), "--variable", "WHO=there")
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if not line.startswith("+")] == ["hi there", "ho there"]
    assert run(tmp_path, "a", calls("who: x, greetings: '[\"yo\"]'")).stdout.endswith("yo x\n")


@table(
    "job, text, why",
    [
        ("b", steps("run: 'true'"), "there is no job 'b'. Jobs: a"),
        ("a", calls(""), "the input who is required"),
        ("a", calls("who: x, whom: y"), "no input whom; inputs: who, greetings"),
        ("a", calls("who: x, greetings: '[]'"), "matrix.greeting is []; expected a list with something in it"),
        ("a", calls("who: x, greetings: hi"), "matrix.greeting is 'hi'; expected a list in JSON"),
        ("a", "  a: {uses: me/it/.github/workflows/x.yml@v1}\n", "is in another repository"),
        ("a", steps("run: echo ${{ github.sha }}"), "${{ github.sha }} cannot be worked out here"),
        ("a", steps("run: echo ${{ matrix.python }}"), "matrix.python is not given; given: nothing"),
    ],
)
def test_what_is_not_understood_is_refused(tmp_path: Path, job: str, text: str, why: str) -> None:
    done = run(tmp_path, job, text)
    assert done.returncode == 2
    assert why in done.stderr


def test_a_step_that_fails_ends_it_with_its_status(tmp_path: Path) -> None:
    done = run(tmp_path, "a", steps("uses: actions/checkout@v4", "run: exit 3", "run: echo late"))
    assert done.returncode == 3
    assert "late" not in done.stdout


def test_steps_have_their_folder_and_their_environment_alone(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    done = run(
        tmp_path, "a", steps("{run: pwd, working-directory: in}", "{run: 'echo $A.', env: {A: b}}", "run: echo $A.")
    )
    assert [line for line in done.stdout.splitlines() if not line.startswith("+")] == [str(tmp_path / "in"), "b.", "."]
