import asyncio
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from slime_agent_openai.cli_agent import CliAgents, check_command, prompt_of
from slime_agent_openai.errors import AgentError
from slime_agent_openai.task import Task
from slime_core.sample import Json, Message
from tests.tables import table

TASK = Task("What is {17}?", None, "http://127.0.0.1:1/s/key", "the-key")


def run(argv: Sequence[str], *, timeout_s: float = 20.0, env: dict[str, str] | None = None) -> None:
    assert asyncio.run(CliAgents(argv, env or {}, 1024).run(TASK, timeout_s=timeout_s)) is None


def failure(argv: Sequence[str], **named: object) -> AgentError:
    with pytest.raises(AgentError) as caught:
        run(argv, **named)  # type: ignore[arg-type]
    return caught.value


def shown(script: str, *arguments: str, env: dict[str, str] | None = None) -> str:
    """What a script prints, by way of its failure."""
    return failure([sys.executable, "-S", "-c", f"{script}; raise SystemExit(1)", *arguments], env=env).detail


def test_placeholders_are_replaced_and_other_braces_stay() -> None:
    said = shown("import sys; print(sys.argv[1:])", "{prompt}", "{openai_base_url}", "{key: 1}")
    assert said == "['What is {17}?', 'http://127.0.0.1:1/s/key/v1', '{key: 1}']"


def test_environment_has_the_endpoint_and_no_driver_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_DRIVER", "hush")
    said = shown("import os; print(sorted(os.environ), os.environ['OPENAI_BASE_URL'])", env={"MINE": "1"})
    assert "SECRET_OF_THE_DRIVER" not in said
    assert "ANTHROPIC_API_KEY" in said
    assert "MINE" in said
    assert said.endswith("http://127.0.0.1:1/s/key/v1")


def test_working_directory_is_temporary() -> None:
    folder = shown("import os; open('made', 'w').close(); print(os.getcwd())")
    assert not os.path.exists(folder)  # noqa: PTH110  # as it was printed


@table(
    "argv, timeout_s, reason, detail",
    [
        (["sh", "-c", "echo no river; exit 3"], 20.0, "agent_exit_3", "no river"),
        (["sh", "-c", "kill -9 $$"], 20.0, "agent_killed", ".*"),
        (["sh", "-c", "kill -11 $$"], 20.0, "agent_signal_11", ".*"),
        (["no-such-agent"], 20.0, "agent_start", ".*No such file.*"),
        (["sleep", "600"], 0.3, "agent_timeout", ".*"),
    ],
)
def test_failed_command_names_the_reason(argv: list[str], timeout_s: float, reason: str, detail: str) -> None:
    error = failure(argv, timeout_s=timeout_s)
    assert error.reason == reason
    assert re.fullmatch(detail, error.detail, re.DOTALL)


@table(
    "argv, said",
    [
        ([], "command is empty. Write for example command ="),
        (["no-such-agent"], "there is no command 'no-such-agent' on PATH. Install it"),
        (["./no-such-agent"], "there is no command './no-such-agent'. Install it, or write its absolute path"),
        (["sh", "{promt}"], r"unknown \{promt\}\. Did you mean 'prompt'\? Placeholders are \{prompt\}, \{url\}"),
    ],
)
def test_unusable_command_is_refused_early(argv: list[str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_command(argv, {})


def test_command_path_is_relative_to_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "my-agent"
    program.write_text("#!/bin/sh\necho here; exit 1\n")
    program.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert failure(["./my-agent"]).detail == "here"
    assert failure(["my-agent"], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}).detail == "here"
    check_command(["my-agent"], {"PATH": str(tmp_path)})
    with pytest.raises(ValueError, match=f"does not exist in an agent's working directory. Write {program}"):
        check_command(["sh", "./my-agent"], {})
    with pytest.raises(ValueError, match=f"my-agent does not exist in an agent's working directory. Write {program}"):
        check_command(["sh", "my-agent"], {})
    check_command(["sh", str(program)], {})


def test_prompt_text_joins_all_messages() -> None:
    parts: list[Json] = [{"type": "text", "text": "What is"}, {"type": "text", "text": "2 + 2?"}]
    prompt: list[Message] = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": parts}]
    assert prompt_of(replace(TASK, prompt=prompt)) == "Be brief.\n\nWhat is\n2 + 2?"
