"""Clients as their makers ship them, the oldest that works and the newest, each in an environment of its own."""

import shutil
from functools import partial
from pathlib import Path

import pytest
from chat import load_chat
from environments import environment, npm_folder, said_last
from serving import There
from talker import Talker
from tool_loop import CALLS, run

from slime_agent_openai.session import SessionLimits

SCRIPTS = Path(__file__).with_name("sdk_scripts")
CLIENTS = {
    "openai chat, oldest": ("openai_chat", "openai==1.1.0", "httpx<0.28"),
    "openai chat, newest": ("openai_chat", "openai"),
    "openai responses, oldest": ("openai_responses", "openai==1.66.2"),
    "openai responses, newest": ("openai_responses", "openai"),
    "anthropic, oldest": ("anthropic_messages", "anthropic==0.27.0", "httpx<0.28"),
    "anthropic, newest": ("anthropic_messages", "anthropic"),
    "openai-agents, oldest": ("openai_agents", "openai-agents==0.0.3", "openai<2"),
    "openai-agents, newest": ("openai_agents", "openai-agents"),
    "langchain-openai, oldest": ("langchain_chat", "langchain-openai==0.1.8", "httpx<0.28"),
    "langchain-openai, newest": ("langchain_chat", "langchain-openai"),
    "litellm, oldest": ("litellm_chat", "litellm==1.61.0", "httpx<0.28", "openai<1.70"),
    "litellm, newest": ("litellm_chat", "litellm", "mcp"),
    "pydantic-ai, newest": ("pydantic_ai_chat", "pydantic-ai-slim[openai]"),
    "langchain agents, newest": ("langchain_agent", "langchain", "langchain-anthropic"),
    "autogen, newest": ("autogen_chat", "autogen-agentchat", "autogen-ext[openai]"),
    "haystack, newest": ("haystack_chat", "haystack-ai"),
    "strands, newest": ("strands_messages", "strands-agents[anthropic]"),
}  # By name: its function in clients.py, and its packages: the client, and what it needs without requiring it
AI_SDK = ("ai@6.0.326", "@ai-sdk/openai@3.0.141", "@ai-sdk/openai-compatible@2.0.92", "@ai-sdk/anthropic@3.0.140")
NODE_CLIENTS = {
    "openai chat": ("openai_node", "chat", "openai@6.49.0"),
    "openai responses": ("openai_node", "responses", "openai@6.49.0"),
    "anthropic messages": ("anthropic_node", "messages", "@anthropic-ai/sdk@1.12.0"),
    **{
        f"ai {kind}": ("ai_sdk", kind, *AI_SDK, "zod@4.6.7") for kind in ("chat", "compatible", "responses", "messages")
    },
}  # By name: a script, what it speaks, and what npm installs for it


@pytest.mark.clients
@pytest.mark.parametrize("client", CLIENTS)
def test_released_client_leaves_one_sample(tmp_path: Path, client: str) -> None:
    name, *wanted = CLIENTS[client]
    _run(tmp_path, environment(*wanted), SCRIPTS / "clients.py", name)


@pytest.mark.clients
@pytest.mark.parametrize("client", NODE_CLIENTS)
def test_node_client_leaves_one_sample(tmp_path: Path, client: str) -> None:
    script, kind, *wanted = NODE_CLIENTS[client]
    folder = npm_folder(*wanted)  # node looks for packages beside the script
    copied = shutil.copy(SCRIPTS / f"{script}.mjs", folder / f"{script}.mjs")
    _run(tmp_path, shutil.which("node") or "node", copied, kind)


def _run(tmp_path: Path, program: Path | str, script: Path, *more: str) -> None:
    """Let a script ask, whole and streamed, and hold what is left against the engine's log."""

    async def act(there: There, how: str) -> str:
        argv = (program, script, there.url, how, *more)
        env = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "NO_PROXY": "127.0.0.1",
            "OPENAI_API_KEY": there.session.key,  # the Agents SDK's old ones want one to be there
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # else it looks on the network first
        }
        return await said_last(tmp_path, env, *argv)

    # LangChain's old ones say temperature = 0.7 on their own.
    limits = SessionLimits(on_sampling="ignore")
    for how in ("whole", "stream"):
        talker = Talker(load_chat(tmp_path / how), lambda text, turn: CALLS[turn])
        run(talker, partial(act, how=how), seconds=120, limits=limits)
