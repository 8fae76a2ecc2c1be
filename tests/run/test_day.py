"""The day of a run: its chat template writes that of the first start, on whichever day the run is continued."""

import json
import shutil
from datetime import date
from pathlib import Path

import pytest

from slime_core.run import resume
from tests.conftest import Slime

DATED = (
    "{{ strftime_now('%Y-%m-%d') }}{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>{% endif %}"
)
RL = ("--rollout-batch-size", 1, "--n-samples-per-prompt", 2, "--rollout-max-response-len", 2, "--save-interval", 1)
WITH = ("--reward", "math", "--engine.local.workers", 1, "--trainer.local.ranks", 1, "--lr", 1e-6, "--no-progress")


@pytest.fixture
def dated(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model whose template writes the date and ends turns with a token that its files do not name."""
    monkeypatch.chdir(tmp_path)
    model = Path(shutil.copytree(tiny_model, tmp_path / "model"))
    (model / "chat_template.jinja").write_text(DATED)
    for name, edit in (("config.json", 0), ("generation_config.json", 0)):
        values = json.loads((model / name).read_text())
        (model / name).write_text(json.dumps({**values, "eos_token_id": edit}))
    about = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**about, "eos_token": "<|pad|>"}))
    (tmp_path / "d.jsonl").write_text("".join(json.dumps({"q": f"{n}+1?", "a": str(n + 1)}) + "\n" for n in range(4)))
    return model


def prompts(run: Path) -> list[str]:
    import pyarrow.parquet as pq

    shards = sorted((run / "samples").glob("*.parquet"))
    return [row["prompt"] for shard in shards for row in pq.read_table(shard).to_pylist()]


def test_a_run_that_is_continued_on_another_day_makes_the_same_prompts(
    slime: Slime, dated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ("--prompt-data", "d.jsonl", "--input-key", "q", "--label-key", "a", "--apply-chat-template")

    def on(day_of_month: int) -> None:
        monkeypatch.setattr(resume, "today", lambda: date(2031, 2, day_of_month))

    on(7)
    first = slime.ok("train", "--hf-checkpoint", dated, *data, *RL, *WITH, "--num-rollout", 1, "--save", "run")
    assert "ends an answer with '<|im_end|>'" in first.out
    on(8)
    assert slime("resume", "run", "--num-rollout", 2, "--no-progress").code == 0
    written = prompts(Path("run"))
    assert len(written) == 4
    assert all(text.startswith("2031-02-07<|im_start|>") for text in written)
    slime.ok("generate", "run", "Hi", "--apply-chat-template", "--max-new-tokens", 1, "--out", "o.jsonl")
    assert json.loads(Path("o.jsonl").read_text())["prompt"].startswith("2031-02-07")
    model = Path("run/checkpoints/rollout_000002/hf")
    assert json.loads((model / "generation_config.json").read_text())["eos_token_id"] == [0, 2]
