"""A plugin with an instant engine, a toy trainer and a launcher that starts no process: a whole run in 0.1 s.

Every number of it hangs on all numbers before: tokens on the weights and the sample's seed, weights on tokens,
rewards, importance weights, their order and a random state. So one lost, repeated or swapped group changes the
weights, and all that comes after. The trainer remembers which prompts its weights were trained on.
"""

import asyncio
import hashlib
import json
import os
import random
import struct
import subprocess
import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from slime_core import Score, hookimpl
from slime_core.roles import (
    AdvantageSpec,
    EngineSpec,
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    LauncherSpec,
    LossSpec,
    Place,
    RankSetup,
    RewardContext,
    RewardSpec,
    Settings,
    StepResult,
    TrainBatch,
    TrainerRank,
    TrainerSpec,
    TransportSetup,
    TransportSpec,
    WeightChannel,
    WeightSlot,
    WorkerGroup,
    WorkerGroupSpec,
)
from slime_core.sample import Json, Sample

SLIME_API = "1"
NUMEL = 16
HALF = 4 * NUMEL
LETTERS = 60
"""Ids of the letters that the engine writes: 0 to 59."""


def digest(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"|".join(parts), digest_size=32).digest()


@dataclass(frozen=True, slots=True)
class ToyChannel(WeightChannel):
    """A file of two versions."""

    path: Path


class ToyTransport:
    """Version v lies in half v % 2."""

    def __init__(self, settings: Settings, setup: TransportSetup) -> None:
        self._path = setup.scratch / "toy"

    async def open(self, slots: Sequence[WeightSlot]) -> ToyChannel:
        self._path.write_bytes(bytes(2 * HALF))
        return ToyChannel("toy", tuple(slots), self._path)

    async def close(self) -> None: ...


class InstantEngine:
    """Writes what the weights and the seed of a request say, token by token, after a moment of its own."""

    def __init__(self) -> None:
        self._weights, self._version, self._aborts = b"", -1, 0

    async def start(self) -> None: ...

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        data = cast(ToyChannel, channel).path.read_bytes()
        self._weights, self._version = data[version % 2 * HALF :][:HALF], version

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        prompt, version, aborts = array("q", request.prompt).tobytes(), self._version, self._aborts
        noise = digest(self._weights, prompt, struct.pack("<q", request.seed))
        budget = request.sampling.max_new_tokens
        length = 1 + noise[0] % min(budget, 24)
        for done in range(os.urandom(1)[0] % 8):
            await asyncio.sleep(0)
            if self._aborts > aborts:
                return self._output(noise, min(done, length - 1), FinishReason.ABORT, version)
        return self._output(noise, length, FinishReason.LENGTH if length == budget else FinishReason.STOP, version)

    @staticmethod
    def _output(noise: bytes, length: int, finish: FinishReason, version: int) -> GenerateOutput:
        tokens = [byte % LETTERS for byte in noise[1 : 1 + length]]
        return GenerateOutput(tokens, [-(byte + 1) / 64 for byte in noise[1 : 1 + length]], finish, version)

    async def abort(self) -> None:
        self._aborts += 1

    async def close(self) -> None: ...


class ToyRank:
    """Sixteen numbers, a momentum of each, a random state and the count of each prompt that they have seen."""

    def __init__(self, setup: RankSetup) -> None:
        self._weights = array("f", [0.0] * NUMEL)
        self._momenta = array("d", [0.0] * NUMEL)
        self._random = random.Random(setup.seed)
        self._seen: dict[str, int] = {}
        self._path = Path()

    def weight_slots(self) -> Sequence[WeightSlot]:
        return [WeightSlot("w", (NUMEL,))]

    def begin_rollout(self, batches: Sequence[TrainBatch]) -> None:
        self._batches = batches

    def train_step(self, step: int) -> StepResult:
        batch = self._batches[step]
        for index in sorted(set(batch.group_index_S)):
            place = batch.prompt_index_S[batch.group_index_S.index(index)]
            prompt = ",".join(map(str, batch.prompts_P[place]))
            self._seen[prompt] = self._seen.get(prompt, 0) + 1
        noise = digest(*map(self._numbers, (batch.tokens_T, batch.rewards_S, batch.weights_S, self._momenta)))
        for place in range(NUMEL):
            step = noise[place] / 256 - 0.5 + self._random.gauss(0, 0.1)
            self._momenta[place] = 0.9 * self._momenta[place] + step
            self._weights[place] += 0.01 * self._momenta[place]
        rewards = list(batch.rewards_S)
        scores = {index: abs(rewards[batch.group_index_S.index(index)]) for index in set(batch.group_index_S)}
        return StepResult({"loss": self._momenta[0]}, 1, {"grad_norm": abs(self._momenta[1])}, scores)

    @staticmethod
    def _numbers(values: Sequence[float]) -> bytes:
        return array("d", values).tobytes()

    def connect(self, channel: ToyChannel) -> None:
        self._path = channel.path

    def publish(self, target: tuple[int, Sequence[int]]) -> None:
        version, _ = target
        with self._path.open("r+b") as file:
            file.seek(version % 2 * HALF)
            file.write(self._weights.tobytes())

    def finish_save(self, wait: bool) -> bool:
        return True

    def save(self, target: tuple[Path, bool]) -> None:
        directory, _ = target
        (directory / "hf").mkdir()
        (directory / "optim").mkdir()
        (directory / "hf" / "model.safetensors").write_bytes(self._weights.tobytes())
        about: dict[str, Json] = {
            "momenta": list(self._momenta),
            "random": cast(Json, self._random.getstate()),
            "seen": cast(Json, self._seen),
        }
        (directory / "optim" / "toy.json").write_text(json.dumps(about))

    def load(self, directory: Path) -> None:
        self._weights = array("f", (directory / "hf" / "model.safetensors").read_bytes())
        about = json.loads((directory / "optim" / "toy.json").read_text())
        version, numbers, gauss = about["random"]
        self._momenta, self._seen = array("d", about["momenta"]), about["seen"]
        self._random.setstate((version, tuple(numbers), gauss))


class LauncherSettings(Settings):
    """`[launcher.in_process]`."""

    step_s: float = 0.0
    """Of an optimizer step, in which the driver does other things."""


class InProcess:
    """Launcher: the one worker is an object of the driver's process."""

    def __init__(self, step_s: float = 0.0) -> None:
        self._step_s = step_s

    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        return OneWorker(ToyRank(cast(RankSetup, spec.arguments["setup"])), self._step_s)

    async def close(self) -> None: ...


class OneWorker:
    """A group of one."""

    size = 1
    places = (Place(0),)

    def __init__(self, worker: object, step_s: float = 0.0) -> None:
        self._worker, self._step_s = worker, step_s

    async def call(
        self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
    ) -> list[object]:
        if self._step_s and method == "train_step":
            await asyncio.sleep(self._step_s)
        return [getattr(self._worker, method)(*(arguments or ()))]

    async def call_one(self, rank: int, method: str, argument: object, *, timeout_s: float | None = None) -> object:
        return getattr(self._worker, method)(argument)

    def unanswered(self) -> Mapping[int, str]:
        return {}

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None: ...


class SlowSettings(Settings):
    """`[reward.slow]`."""

    most_s: float = 0.01


def _slow(settings: SlowSettings, setup: object) -> object:
    async def slow(sample: Sample, ctx: RewardContext) -> Score:
        """The same after a time that the sample's seed says: most are fast, and few take `most_s`."""
        await asyncio.sleep(settings.most_s * (ctx.seed % 1000 / 1000) ** 3)
        return await even(sample, ctx)

    return slow


async def even(sample: Sample, ctx: RewardContext) -> Score:
    """1 where the response has an even number of tokens, else 0, at some later time."""
    for _ in range(os.urandom(1)[0] % 4):
        await asyncio.sleep(0)
    return Score(float(1 - sample.response_length % 2))


def _no_rank(rank: int, world_size: int, setup: RankSetup) -> TrainerRank:
    raise NotImplementedError("the launcher makes it")


def _unused(settings: Settings, setup: object) -> object:
    raise NotImplementedError("the trainer has rewards, and its own step")


@hookimpl
def slime_rewards() -> Iterable[RewardSpec]:
    yield RewardSpec.from_function("even", even)
    yield RewardSpec("slow", _slow, settings=SlowSettings)


@hookimpl
def slime_engines() -> Iterable[EngineSpec]:
    yield EngineSpec("instant", lambda settings, setup: InstantEngine(), transports=("toy",))


@hookimpl
def slime_trainers() -> Iterable[TrainerSpec]:
    yield TrainerSpec("toy", _no_rank)


@hookimpl
def slime_transports() -> Iterable[TransportSpec]:
    yield TransportSpec("toy", ToyTransport, one_machine=True, brings_receiver=False)


@hookimpl
def slime_advantages() -> Iterable[AdvantageSpec]:
    yield AdvantageSpec("none", _unused)


@hookimpl
def slime_losses() -> Iterable[LossSpec]:
    yield LossSpec("toy_loss", _unused)
    yield LossSpec("given", _unused, uses_advantages=False)


@hookimpl
def slime_launchers() -> Iterable[LauncherSpec]:
    yield LauncherSpec("in_process", lambda settings, setup: InProcess(settings.step_s), settings=LauncherSettings)


def train(run_file: Path) -> Path:
    """Run it in its folder, to its end; returns the run folder."""
    run = run_file.parent / "run"
    argv = [sys.executable, "-m", "slime_core", "train", run_file, "--save", run, "--no-progress"]
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        argv, cwd=run_file.parent, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return run


def write_project(root: Path, rows: int = 13, **changes: Json) -> Path:
    """A model directory, prompts and a run file in `root`; returns the run file. A change to None leaves a key out."""
    from slime_core.config import write_toml

    letters = {chr(ord("!") + number): number for number in range(LETTERS)} | {"<end>": LETTERS}
    model = root / "model"
    model.mkdir()
    backend = {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": letters, "unk_token": "!"},
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False},
    }
    (model / "tokenizer.json").write_text(json.dumps(backend))
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    (model / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))  # for agents
    (model / "config.json").write_text(json.dumps({"model_type": "toy"}))
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": LETTERS}))
    (model / "model.safetensors").write_bytes(b"\2\0\0\0\0\0\0\0{}")
    prompts = [f"{json.dumps({'input': str(100 + number)})}\n" for number in range(rows)]
    (root / "prompts.jsonl").write_text("".join(prompts))
    (root / "held.jsonl").write_text("".join(prompts[:2]))
    values: dict[str, Json] = {
        "plugins": {"only": ["slime-buffer-priority"], "modules": [str(Path(__file__))]},
        "hf_checkpoint": str(model),
        "prompt_data": str(root / "prompts.jsonl"),
        "rollout_shuffle": True,
        "rollout_batch_size": 3,
        "over_sampling_batch_size": 6,
        "n_samples_per_prompt": 3,
        "num_rollout": 7,
        "rollout_max_response_len": 20,
        "eval_prompt_data": {"held": str(root / "held.jsonl")},
        "eval_interval": 3,
        "save_interval": 2,
        "save_keep": 2,
        "seed": 5,
        "reward": {"use": "even"},
        "group_filter": {"use": "nonzero_std"},
        "engine": {"use": "instant"},
        "trainer": {"use": "toy"},
        "launcher": {"use": "in_process"},
    }
    kept = {key: value for key, value in (values | changes).items() if value is not None}
    (root / "run.toml").write_text(write_toml(kept))
    return root / "run.toml"
