"""House rules that need a running program; `make lint` checks the others (tools/check_house.py)."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAVY = {"jinja2", "matplotlib", "numpy", "pyarrow", "ray", "sglang", "tensorboard", "torch", "transformers"}
FRONT_DOOR = (
    "import slime_core",
    "import slime_core.hookspecs, slime_core.roles",
    "import slime_core.builtin",
    "from slime_core.cli import run_cli; run_cli(['--help'])",
    "from slime_core.cli import run_cli; run_cli(['plugins', 'list'])",
    "from slime_core.cli import run_cli; run_cli(['plugins', 'show', 'slime-core'])",
    "from slime_core.cli import run_cli; run_cli(['plugins', 'check', 'slime-reward-math'])",
    "from slime_core.cli import run_cli; run_cli(['train', '--help'])",
    "from slime_core.cli import run_cli; run_cli(['doctor'])",
)


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_front_door_imports_nothing_heavy() -> None:
    wrong = []
    for statement in FRONT_DOOR:
        result = run(sys.executable, "-c", f"{statement}\nimport sys\nprint('modules:', *sys.modules)")
        heavy = HEAVY & set(result.stdout.rpartition("modules:")[2].split())
        if result.returncode != 0:
            wrong.append(f"{statement}: exit status {result.returncode}\n{result.stderr}")
        elif heavy:
            wrong.append(f"{statement}: imports {', '.join(sorted(heavy))}")
    assert not wrong, "\n".join(wrong)


def test_the_public_api_is_the_committed_one() -> None:
    result = run(sys.executable, "tools/api_snapshot.py", "--check")
    assert result.returncode == 0, result.stdout + result.stderr
