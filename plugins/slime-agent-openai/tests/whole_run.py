"""A whole run of agents without torch: an engine that says what a rule makes of the conversation, and no trainer.

    run_file = write_run(tmp_path, 'agent = "./agents.py:solve"')
    assert run_cli(["train", str(run_file)]) == 0

This file is a module of plugins in that run, too.
"""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

from chat import load_chat

from slime_core import hookimpl
from slime_core.data import HfTokenizer
from slime_core.roles import EngineSpec, FinishReason, GenerateOutput, GenerateRequest, Settings, Setup, WeightChannel

SLIME_API = "1"
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 17, "b": 25}}\n</tool_call>'

AGENT = """
from openai import OpenAI

NUMBER = {"type": "integer"}
ADD = {"name": "add", "parameters": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}}}


def solve(task):
    client = OpenAI(base_url=task.openai_base_url, api_key=task.api_key)
    messages = [{"role": "user", "content": task.prompt}]
    while True:
        said = client.chat.completions.create(
            model="m", messages=messages, tools=[{"type": "function", "function": ADD}]
        ).choices[0].message
        if not said.tool_calls:
            return float(task.label in said.content)
        messages.append(said.model_dump(exclude_none=True))
        messages += [{"role": "tool", "tool_call_id": call.id, "content": "42"} for call in said.tool_calls]
"""  # A file of agents


class Settled(Settings):
    """`[engine.settled]`."""

    model: str  # Folder of the tokenizer


class SettledEngine:
    """Calls a tool where one is offered and nothing was answered yet, and else says 42."""

    def __init__(self, tokenizer: HfTokenizer) -> None:
        self._tokenizer = tokenizer

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None: ...

    async def load_checkpoint(self) -> None: ...

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        await asyncio.sleep(0)
        text = self._tokenizer.decode(request.prompt, skip_special_tokens=False)
        calls = "Tools:" in text and "<tool_response>" not in text
        said = CALL if calls else "It is 42."
        tokens = [*self._tokenizer.encode(said), next(iter(self._tokenizer.eos_token_ids))]
        tokens = tokens[: request.sampling.max_new_tokens]
        log_probs = [-(1 + place % 4) / 4 for place in range(len(tokens))]
        return GenerateOutput(tokens, log_probs, FinishReason.STOP, 0)

    async def abort(self) -> None: ...

    async def close(self) -> None: ...


def _engine(settings: Settled, setup: Setup) -> SettledEngine:
    return SettledEngine(HfTokenizer.load(Path(settings.model)))


@hookimpl
def slime_engines() -> Iterable[EngineSpec]:
    yield EngineSpec("settled", _engine, Settled, transports=("shared-buffer",))


def write_run(folder: Path, generator: str) -> Path:
    """A model's tokenizer, prompts and a run file; `generator` is the text of the generator's section."""
    load_chat(folder / "model")
    (folder / "model" / "config.json").write_text('{"model_type": "settled"}')
    (folder / "model" / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    rows = [json.dumps({"input": f"What is 17 + {n}?", "label": "42"}) for n in range(2)]
    (folder / "prompts.jsonl").write_text("\n".join(rows) + "\n")
    run_file = folder / "run.toml"
    text = Path(__file__).with_suffix(".toml").read_text("utf-8")
    run_file.write_text(text.format(folder=folder, module=__file__, generator=generator))
    return run_file
