"""Agents that are programs of their own, as their makers ship them."""

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from chat import load_chat
from environments import npm_folder, said_last
from serving import There
from talker import Talker
from tool_loop import run

from slime_agent_openai.gateway import Gateway

CODEX_CONFIG = """model = "policy"
model_provider = "gateway"

[model_providers.gateway]
name = "gateway"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "OPENAI_API_KEY"
"""
OPENCODE_CONFIG = """{
  "provider": {
    "gateway": {
      "npm": "@ai-sdk/openai-compatible",
      "options": {"baseURL": "{url}/v1", "apiKey": "any"},
      "models": {"policy": {}}
    }
  },
  "agent": {"title": {"disable": true}},
  "permission": "allow",
  "autoupdate": false
}
"""
FIRST = """<think>
I look.
</think>

Let me see.
<tool_call>
{"name": "TOOL",  "arguments": {"ARGUMENT": "echo 84 > note.txt"MORE}}
</tool_call>"""
SECOND = """<tool_call>
{"name": "TOOL", "arguments": {"ARGUMENT":   "cat note.txt"MORE}}
</tool_call>"""
QUESTION = "What is twice 42?"


@dataclass(frozen=True, slots=True)
class Program:
    """One of them, and how it is told where its model is."""

    package: str  # NAME@VERSION, for npm
    command: tuple[str, ...]  # Its name and arguments
    tool: str  # Its tool that runs commands
    argument: str = "command"  # Of the tool
    more: str = ""  # More arguments that the tool must have
    files: dict[str, str] = field(default_factory=dict)  # By path in its HOME; {url} stands for the session's


PROGRAMS = {
    "codex": Program(
        "@openai/codex@0.169.0",
        ("codex", "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", QUESTION),
        "exec_command",
        "cmd",
        files={".codex/config.toml": CODEX_CONFIG},
    ),
    "claude": Program(
        "@anthropic-ai/claude-code@2.1.197",
        ("claude", "-p", QUESTION, "--allowedTools", "Bash", "--model", "policy"),
        "Bash",
    ),
    "opencode": Program(
        "opencode-ai@1.18.33",
        ("opencode", "run", "-m", "gateway/policy", QUESTION),
        "bash",
        more=', "description": "Looks"',
        files={".config/opencode/opencode.json": OPENCODE_CONFIG},
    ),
    "qwen": Program(
        "@qwen-code/qwen-code@0.15.10",
        ("qwen", "-p", QUESTION, "--yolo", "--auth-type", "openai", "-m", "policy"),
        "run_shell_command",
        more=', "is_background": false',
    ),
}


@pytest.mark.clients
@pytest.mark.parametrize("name", PROGRAMS)
def test_released_cli_leaves_one_sample(tmp_path: Path, name: str) -> None:
    of = PROGRAMS[name]
    programs, home, work = npm_folder(of.package) / "node_modules" / ".bin", tmp_path / "home", tmp_path / "work"
    work.mkdir()

    async def act(there: There) -> str:
        for path, text in of.files.items():
            (home / path).parent.mkdir(parents=True)
            (home / path).write_text(text.replace("{url}", there.url))
        home.mkdir(exist_ok=True)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "OPENAI_BASE_URL": f"{there.url}/v1",
            "OPENAI_API_KEY": there.session.key,
            "ANTHROPIC_BASE_URL": there.url,
            "ANTHROPIC_API_KEY": there.session.key,
        }
        said = await said_last(work, env, programs / of.command[0], *of.command[1:])
        assert (work / "note.txt").read_text() == "84\n"
        return said

    def says(text: str, turn: int) -> str:
        said = (FIRST, SECOND, "It is 84.")[turn]
        return said.replace("TOOL", of.tool).replace("ARGUMENT", of.argument).replace("MORE", of.more)

    talker = Talker(load_chat(tmp_path / "chat"), says)
    run(talker, act, seconds=180, gateway=Gateway(hosted="ignore"), max_new_tokens=100_000)
