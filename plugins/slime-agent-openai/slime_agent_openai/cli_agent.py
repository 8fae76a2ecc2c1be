"""CliAgents: agents that are commands. Each sample gets its own process, folder and environment.

Example:

    agents = CliAgents(["codex", "exec", "{prompt}"], env={}, memory_mb=4096)
    await agents.run(task, timeout_s=600.0)
"""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from slime_agent_openai.errors import AgentError, ended_reason, output_tail
from slime_agent_openai.task import Task, Verdict
from slime_core.errors import did_you_mean
from slime_core.processes import CommandError, command

PLACEHOLDERS = ("prompt", "url", "openai_base_url", "anthropic_base_url", "api_key", "model")
"""Names that an argument may use in braces."""
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


class CliAgents:
    """Implements `slime_agent_openai.generator.Agents`."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], memory_mb: int) -> None:
        """`env` adds to the variables that locate the model; `memory_mb` (MiB) limits a command and its children."""
        program = shutil.which(argv[0], path=env.get("PATH")) or argv[0]  # resolved here, not in the command's folder
        self._argv = [str(Path(program).absolute()) if os.sep in program else program, *argv[1:]]
        self._env, self._memory_mb = dict(env), memory_mb

    async def start(self) -> None:
        """Does nothing: each sample starts its own command."""

    async def close(self) -> None:
        """Does nothing: each command ends with its sample."""

    async def run(self, task: Task, *, timeout_s: float) -> Verdict:
        values = values_of(task)
        argv = [_PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), argument) for argument in self._argv]
        folder = tempfile.TemporaryDirectory(prefix="slime-agent-", ignore_cleanup_errors=True)
        try:
            env = environment(task, folder.name) | self._env
            result = await command(argv, env=env, cwd=folder.name, memory_mb=self._memory_mb, timeout_s=timeout_s)
        except CommandError as error:
            raise AgentError(f"agent_{error.reason}", str(error)) from None
        finally:
            await asyncio.to_thread(folder.cleanup)  # it may hold many files
        if result.code:
            raise AgentError(ended_reason(result.code), output_tail(result.stdout + result.stderr))
        return None

    run_alone = run  # Each sample has its own process already


def check_command(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Check that the command exists and that its arguments use known placeholders."""
    if not argv:
        raise ValueError('command is empty. Write for example command = ["codex", "exec", "{prompt}"]')
    if shutil.which(argv[0], path=env.get("PATH")) is None:
        if os.sep in argv[0] and Path(argv[0]).is_file():
            alternative = f'or put its interpreter first: ["python", "{Path(argv[0]).resolve()}"]'
            raise ValueError(f"{argv[0]} is not executable. Run chmod +x {argv[0]}, {alternative}")
        where = "" if os.sep in argv[0] else " on PATH"
        raise ValueError(f"there is no command {argv[0]!r}{where}. Install it, or write its absolute path")
    unknown = [name for argument in argv for name in _PLACEHOLDER.findall(argument) if name not in PLACEHOLDERS]
    if unknown:
        known = ", ".join(f"{{{each}}}" for each in PLACEHOLDERS)
        raise ValueError(f"unknown {{{unknown[0]}}}.{did_you_mean(unknown[0], PLACEHOLDERS)} Placeholders are {known}")
    local = [each for each in argv[1:] if each.startswith(("./", "../")) and Path(each).exists()]
    local += [each for each in argv[1:2] if not Path(each).is_absolute() and Path(each).is_file()]  # python agent.py
    if local:
        raise ValueError(f"{local[0]} does not exist in an agent's working directory. Write {Path(local[0]).resolve()}")


def values_of(task: Task) -> Mapping[str, str]:
    """Value of each placeholder."""
    return {
        "prompt": prompt_of(task),
        "url": task.url,
        "openai_base_url": task.openai_base_url,
        "anthropic_base_url": task.anthropic_base_url,
        "api_key": task.api_key,
        "model": task.model,
    }


def prompt_of(task: Task) -> str:
    """The prompt as one text. Chat messages are joined, one paragraph each."""
    if isinstance(task.prompt, str):
        return task.prompt
    return "\n\n".join(filter(None, (_text(message.get("content")) for message in task.prompt)))


def _text(content: object) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(str(part["text"]) for part in parts if isinstance(part, dict) and "text" in part)


def environment(task: Task, folder: str) -> dict[str, str]:
    """Environment of a command: where the model is, without the driver's own variables."""
    return {
        "HOME": folder,
        "TERM": "dumb",
        "NO_PROXY": "*",
        "OPENAI_BASE_URL": task.openai_base_url,
        "OPENAI_API_KEY": task.api_key,
        "ANTHROPIC_BASE_URL": task.anthropic_base_url,
        "ANTHROPIC_AUTH_TOKEN": task.api_key,
        "ANTHROPIC_API_KEY": task.api_key,
    }
