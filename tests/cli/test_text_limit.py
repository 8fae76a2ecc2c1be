"""`slime generate` and the model's longest text: a prompt that fills it is refused, what it cuts short is named."""

import json
import shutil
from pathlib import Path

import pytest

from slime_core.data import HfTokenizer
from tests.conftest import Project, Slime
from tests.tables import table

POSITIONS = 256


def length(project: Project, text: str) -> int:
    return len(HfTokenizer.load(project.model).encode(text))


@pytest.mark.parametrize("key", ["max_position_embeddings", "n_positions"])
def test_a_prompt_that_leaves_no_room_is_refused_by_number(project: Project, slime: Slime, key: str) -> None:
    shutil.copytree(project.model, "model")
    config = json.loads(Path("model/config.json").read_text())
    del config["max_position_embeddings"]
    Path("model/config.json").write_text(json.dumps(config | {key: POSITIONS}))
    texts = ["2+3?", "1+" * POSITIONS, "1+" * 2 * POSITIONS]
    project.write_rows("p.jsonl", [{"input": text} for text in texts])
    Path("o.jsonl").write_text("old")
    refusal = slime.refused("generate", "model", "--prompt-data", "p.jsonl", "--out", "o.jsonl")
    assert f"prompt 1 has {length(project, texts[1])} tokens (and 1 more are as long)" in refusal
    assert f"the model has {POSITIONS} positions" in refusal
    assert Path("o.jsonl").read_text() == "old"


@table("out", [[], ["--out", "o.jsonl"]])
def test_responses_that_are_cut_short_are_said(project: Project, slime: Slime, out: list[str]) -> None:
    flags = ["--n-samples-per-prompt", 2, "--ignore-eos", *out]
    ran = slime.ok("generate", project.model, "abc", "--max-new-tokens", 300, *flags)
    taken = length(project, "abc")
    assert (
        f"cut short by the model's {POSITIONS} positions: 2 responses, the first: prompt 0 sample 0 has "
        f"{POSITIONS - taken} of 300 tokens after {taken} of the prompt\n"
    ) in ran.err
    fits = slime("generate", project.model, "abc", "--max-new-tokens", POSITIONS - taken, *flags)
    assert "cut short" not in fits.err
