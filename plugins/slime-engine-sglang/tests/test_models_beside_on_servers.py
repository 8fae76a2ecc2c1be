"""A run that serves three models, a server each: the policy, a teacher that it is distilled from, and a judge.

What the teacher and the judge say of each sample is what Hugging Face's models of theirs say.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from on_a_server import FILE
from safetensors.torch import load_file, save_file
from servers import PYTHON, needs_servers
from transformers import AutoModelForCausalLM

from slime_core.data import HfTokenizer
from slime_core.sample import Sample
from slime_testing import write_tiny_model
from slime_view.samples import Shard

pytestmark = [pytest.mark.server, pytest.mark.timeout(1200)]
ASKED = "{prompt} {response} t7"
MADE = 6
RUN = Path(__file__).with_name("models_beside_on_servers.toml").read_text("utf-8")


def test_what_a_teacher_and_a_judge_say_reaches_the_samples(tmp_path: Path) -> None:
    needs_servers()
    for scale, name in ((1.0, "policy"), (1.5, "teacher"), (2.0, "judge")):
        model = write_tiny_model(tmp_path / name)
        weights = load_file(model / FILE)
        save_file({key: each * scale for key, each in weights.items()}, model / FILE, {"format": "pt"})
    rows = [{"question": f"t{number} t{number + 1}", "answer": "t5"} for number in range(12)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    (tmp_path / "run.toml").write_text(RUN.format(python=PYTHON, asked=ASKED, made=MADE), "utf-8")
    command = [sys.executable, "-m", "slime_core", "train", "run.toml", "--no-progress"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    metrics = [json.loads(line)["metrics"] for line in (tmp_path / "run/metrics.jsonl").read_text("utf-8").splitlines()]
    assert all(abs(row["train/opd_reverse_kl"]) > 1e-3 for row in metrics)
    samples = [
        sample
        for path in sorted((tmp_path / "run/samples").glob("*.parquet"))
        for group in Shard(path).groups().kept
        for sample in group.samples
    ]
    assert len(samples) == 16
    for sample in samples:
        assert sample.teacher_log_probs is not None
        told = torch.tensor(list(sample.teacher_log_probs))
        assert (told - teachers(tmp_path / "teacher", sample)).abs().max() < 1e-5
        assert sample.reward == judged(tmp_path / "judge", sample)
    assert len({sample.reward for sample in samples}) > 1


def teachers(model: Path, sample: Sample) -> torch.Tensor:
    """Log-probs of the response."""
    hf = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    tokens = torch.tensor([list(sample.tokens)])
    with torch.no_grad():
        log_probs = hf(tokens).logits[0, :-1].log_softmax(-1)
    return log_probs.gather(1, tokens[0, 1:, None])[-sample.response_length :, 0]


def judged(model: Path, sample: Sample) -> float:
    """The last number in what it says greedily; 0 where it says none."""
    hf, tokenizer = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval(), HfTokenizer.load(model)
    tokens = tokenizer.encode(ASKED.format(prompt=sample.prompt, response=sample.response))
    asked = len(tokens)
    with torch.no_grad():
        while len(tokens) < asked + MADE and tokens[-1] not in tokenizer.eos_token_ids:
            tokens.append(int(hf(torch.tensor([tokens])).logits[0, -1].argmax()))
    return float(["0", *re.findall("t([0-9]+)", tokenizer.decode(tokens[asked:]))][-1])
