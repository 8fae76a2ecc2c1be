"""How environments are named: packages as on a hub, files and functions; and what is refused with the plan."""

import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from slime_agent_openai.settings import VerifiersSettings, reference_of

FILE = f"{Path(__file__).parent}/some_environments.py"


@pytest.mark.parametrize(
    ("environment", "reference"),
    [
        ("my-env", "my_env:load_environment"),
        ("owner/my-env", "my_env:load_environment"),
        ("./my-env.py", "./my-env.py:load_environment"),
        ("./my-env.py:make", "./my-env.py:make"),
        ("package.module:make", "package.module:make"),
    ],
)
def test_a_name_is_a_function(environment: str, reference: str) -> None:
    assert reference_of(environment) == reference


def test_an_environment_that_is_not_there_is_refused_with_the_plan() -> None:
    assert VerifiersSettings(environment=FILE).arguments == {}
    with pytest.raises(ValidationError, match=r"has no function 'load_tool'\. Did you mean 'load_tools'\?"):
        VerifiersSettings(environment=f"{FILE}:load_tool")
    with pytest.raises(ValidationError, match="there is no module 'no_such_env' here: install its package"):
        VerifiersSettings(environment="owner/no-such-env")


def test_without_verifiers_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "verifiers.py").write_text("")  # no package, as a later release without what is needed
    command = [sys.executable, "-m", "slime_agent_openai.verifiers_agent", FILE]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 1
    assert "install the extra `verifiers` of slime-agent-openai, which is verifiers>=0.3,<0.4" in ran.stderr
