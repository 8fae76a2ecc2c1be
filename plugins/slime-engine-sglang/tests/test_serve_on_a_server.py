"""`slime engine serve --backend sglang`: the same wire, spoken by SGLang itself, and nothing left after Ctrl-C."""

import os
import time
from pathlib import Path

import pytest
from served import Serving, serving
from servers import PYTHON, needs_servers

from slime_testing import write_tiny_model

pytestmark = [pytest.mark.server, pytest.mark.timeout(900)]
PROMPT = [5, 6, 7]
GONE_S = 10.0
"""Seconds after which nothing may be left of what was served: the last process of a killed group takes a moment."""
GREEDY = {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True}


def said(server: Serving, prompt: list[int]) -> tuple[list[int], list[float], list[float]]:
    """Ids that are made greedily, their log-probs, and those of the text with them."""
    made = server.ask("/generate", {"input_ids": prompt, "sampling_params": GREEDY, "return_logprob": True})
    ids, told = made["output_ids"], [entry[0] for entry in made["meta_info"]["output_token_logprobs"]]
    text = {"input_ids": [*prompt, *ids], "return_logprob": True, "logprob_start_len": 0}
    read = server.ask("/generate", {**text, "sampling_params": {"max_new_tokens": 0}})
    return ids, told, [entry[0] for entry in read["meta_info"]["input_token_logprobs"][1:]]


def test_both_backends_say_the_same_and_end_with_ctrl_c(tmp_path: Path) -> None:
    needs_servers()
    model = write_tiny_model(tmp_path / "model")
    with serving(model) as local:
        ids, log_probs, scores = said(local, PROMPT)
    with serving(model, "--backend", "sglang", "--set", f"python={PYTHON}", "--set", "deterministic=true") as sglang:
        found = said(sglang, PROMPT)
        own = sglang.ask("/server_info")
        group = [
            int(each.name)
            for each in Path("/proc").iterdir()
            if each.name.isdigit() and _parent(each) == sglang.process.pid
        ]
    assert found[0] == ids
    assert found[1] == pytest.approx(log_probs, abs=1e-5)
    assert found[2] == pytest.approx(scores, abs=1e-5)
    assert own["model_path"] == str(model)
    assert len(group) == 1
    until = time.monotonic() + GONE_S
    while _is_left(group[0]):
        assert time.monotonic() < until, "a process of its server is left"
        time.sleep(0.1)


def _is_left(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _parent(process: Path) -> int:
    try:
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0  # it has ended
