"""Where an end-to-end test runs the commands as a user types them: a folder with a model, prompts and a reward in it.

On CPUs everything is small and made here. Where there are GPUs, engines and trainers take them, and SLIME_E2E_MODEL and
SLIME_E2E_PROMPTS name a model directory and a `.jsonl` of prompts (`prompt`, `label`) to take instead.

Example:

    place = Place(tmp_path)
    place.prepare()
    run = place.train("run", num_rollout=2)
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slime_testing import write_tiny_model

ROOT = Path(__file__).resolve().parents[2]
REWARD = '''"""Pays for characters whose code is even: any model makes some, and samples of one prompt differ."""

from slime_core import RewardContext, Sample, Score


def even(sample: Sample, ctx: RewardContext) -> Score:
    """The share of them."""
    return Score(sum(ord(each) % 2 == 0 for each in sample.response) / max(1, len(sample.response)))
'''
SLOWEST_S = 900


def on_gpus() -> bool:
    """Whether the kernel shows NVIDIA devices that this process may use."""
    return any(Path("/dev").glob("nvidia[0-9]*")) and os.environ.get("CUDA_VISIBLE_DEVICES") != ""


@dataclass(frozen=True)
class Run:
    """What a run left."""

    folder: Path

    def metrics(self, name: str) -> list[float]:
        """A metric, by rollout."""
        lines = (self.folder / "metrics.jsonl").read_text("utf-8").splitlines()
        return [row["metrics"][name] for row in map(json.loads, lines) if name in row["metrics"]]

    def weights(self) -> bytes:
        """The newest checkpoint's, in Hugging Face format."""
        newest = max((self.folder / "checkpoints").glob("rollout_*"))
        return b"".join(path.read_bytes() for path in sorted((newest / "hf").glob("*.safetensors")))


@dataclass(frozen=True)
class Place:
    """A folder for one test."""

    folder: Path

    def prepare(self) -> None:
        """Make the model, the prompts and the reward."""
        model, prompts = (os.environ.get(f"SLIME_E2E_{what}", "") for what in ("MODEL", "PROMPTS"))
        if model:
            (self.folder / "model").symlink_to(Path(model).resolve())
        else:
            write_tiny_model(self.folder / "model")
        if prompts:
            shutil.copy(prompts, self.folder / "prompts.jsonl")
        else:
            rows = [{"prompt": f"t{3 + n % 20} t{4 + n % 30}", "label": ""} for n in range(64)]
            (self.folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
        (self.folder / "even.py").write_text(REWARD, "utf-8")

    def train(self, name: str, tables: Mapping[str, Mapping[str, object]] = {}, **keys: object) -> Run:
        """`slime train` on a run file with these keys, and tables by role."""
        share = {"engine": {"gpus_per_worker": 0.25}, "trainer": {"gpus_per_rank": 0.25}}  # one GPU is enough
        device = {role: {"device": "cuda", **part} if on_gpus() else {} for role, part in share.items()}
        given: dict[str, Mapping[str, object]] = {
            "engine.local": {"workers": 1, **device["engine"]},
            "trainer.local": {"ranks": 2, **device["trainer"]},
        }
        usual = {
            "hf_checkpoint": "model",
            "prompt_data": "prompts.jsonl",
            "input_key": "prompt",
            "label_key": "label",
            "num_rollout": 2,
            "rollout_batch_size": 8,
            "n_samples_per_prompt": 4,
            "rollout_max_response_len": 16,
            "lr": 1e-3,
            "save": name,
            "seed": 1234,
        }
        lines = [f"{key} = {_toml(value)}" for key, value in {**usual, **keys}.items()]
        for table, settings in {**given, "reward": {"use": "./even.py:even"}, **tables}.items():
            if settings:  # an empty one takes away what is usual here
                lines += [f"[{table}]", *(f"{key} = {_toml(value)}" for key, value in settings.items())]
        (self.folder / f"{name}.toml").write_text("\n".join(lines) + "\n", "utf-8")
        self.slime("train", f"{name}.toml", "--no-progress")
        return Run(self.folder / name)

    def slime(self, *arguments: str) -> str:
        """A command that ends well; returns what it prints."""
        done = self.start(arguments)
        said, _ = done.communicate(timeout=SLOWEST_S)
        assert done.returncode == 0, said
        return said

    def start(self, arguments: Sequence[str]) -> "subprocess.Popen[str]":
        """A command, which goes on."""
        command = [str(Path(sys.executable).with_name("slime")), *arguments]
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _toml(value: object) -> str:
    return json.dumps(value) if isinstance(value, str | bool) else str(value)
