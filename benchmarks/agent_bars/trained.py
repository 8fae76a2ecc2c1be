"""Bar 1: which share of the generated tokens is trained on, and whether each is what the engine saw.

Sessions of six turns in two templates, five ways of writing and four ways of sending back; slime's own OpenAI adapter
plays the same sessions, if there is a checkout of it.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import aiohttp

from agent_bars.dialogs import ECHOES, STYLES, TEMPLATES, answers, share, talk, tokenizer_of
from agent_bars.engines import Tell, context_of
from slime_agent_openai.bridge import Bridge
from slime_agent_openai.gateway import Gateway
from slime_agent_openai.parsers.registry import families, find_family
from slime_agent_openai.samples import Outcome, samples_of
from slime_agent_openai.session import Session, SessionLimits
from slime_agent_openai.task import Result
from slime_core.data import HfTokenizer
from slime_core.roles import FinishReason, GenerateOutput, SamplingParams
from slime_core.sample import Sample


class Scripted:
    """An engine that gives one answer after the other, and notes what it was asked."""

    def __init__(self, tokenizer: HfTokenizer, made: Sequence[Sequence[int]]) -> None:
        self._left = [list(each) for each in made]
        self.log: list[tuple[list[int], list[int]]] = []
        """Prompt and answer of each call."""
        self.context = context_of(self.answer, tokenizer)
        """What the sample is given."""

    async def answer(self, prompt: Sequence[int], sampling: SamplingParams | None, on_chunk: Tell) -> GenerateOutput:
        """The next answer."""
        ids = self._left.pop(0)
        self.log.append((list(prompt), ids))
        return GenerateOutput(ids, [-0.5] * len(ids), FinishReason.STOP, 0)


async def played(template: str, style: str, echo: str, folder: Path) -> dict[str, float]:
    """Share, samples and wrong tokens of one session."""
    tokenizer = tokenizer_of(template, folder)
    engine = Scripted(tokenizer, answers(tokenizer, template, style))
    family = find_family(tokenizer, families().values())
    assert family is not None, template
    gateway, session = Gateway(), Session(engine.context, SessionLimits(), Bridge(tokenizer), family)
    await gateway.start()
    try:
        async with gateway.open_session(session) as url, aiohttp.ClientSession() as http:
            await talk(http, url, session.key, echo)
    finally:
        await gateway.close()
    samples = samples_of(Sample(index=0, rollout_id=0), session, Outcome(Result(1.0)), tokenizer)
    trained = sum(sample.effective_response_length for sample in samples)
    return {
        "share": share(trained, [ids for _, ids in engine.log]),
        "samples": len(samples),
        "wrong": sum(_wrong(sample, engine.log) for sample in samples),
    }


def _wrong(sample: Sample, log: Sequence[tuple[list[int], list[int]]]) -> int:
    """Trained tokens that no call of the engine made behind just these tokens."""
    tokens, mask = list(sample.tokens), [0] * sample.prompt_length + list(sample.loss_mask or ())
    right = set()
    for prompt, ids in log:
        end = len(prompt) + len(ids)
        if tokens[:end] == prompt + ids:
            right |= set(range(len(prompt), end))
    return sum(bit and at not in right for at, bit in enumerate(mask))


def bar(slime: Path | None) -> tuple[dict[str, object], bool]:
    """Figures, and whether the goal is met: all tokens, in one sample, none wrong."""
    cells = {}
    with tempfile.TemporaryDirectory() as folder:
        for template in TEMPLATES:
            for style in STYLES:
                for echo in ECHOES:
                    cell = asyncio.run(played(template, style, echo, Path(folder) / template))
                    cells[f"{template}, {style}, {echo}"] = cell
    figures: dict[str, object] = {
        "cells": len(cells),
        "least_share": min(cell["share"] for cell in cells.values()),
        "most_samples": max(cell["samples"] for cell in cells.values()),
        "wrong_tokens": sum(cell["wrong"] for cell in cells.values()),
    }
    is_met = figures["least_share"] == 1.0 and figures["most_samples"] == 1 and figures["wrong_tokens"] == 0
    if slime is not None:
        figures["slime"] = _slimes(slime)
    return figures, is_met


def _slimes(checkout: Path) -> dict[str, float]:
    """The same of slime's adapter, in a process that imports it."""
    path = os.pathsep.join([str(checkout), str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "agent_bars.slimes"]
    ran = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"slime's adapter in {checkout} did not run:\n{ran.stderr[-2000:]}")
    made: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return made
