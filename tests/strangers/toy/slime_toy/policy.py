"""The policy of five logits: its engine, its transport, its rank and the launcher that makes the rank."""

import asyncio
import json
import math
import random
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from slime_core.roles import (
    FinishReason,
    GenerateOutput,
    GenerateRequest,
    Place,
    RankSetup,
    Settings,
    StepResult,
    TrainBatch,
    TransportSetup,
    WeightChannel,
    WeightSlot,
    WorkerGroup,
    WorkerGroupSpec,
)

TOKENS = 5


def probabilities(logits: Sequence[float]) -> list[float]:
    """Softmax."""
    highest = max(logits)
    raised = [math.exp(each - highest) for each in logits]
    return [each / sum(raised) for each in raised]


def centered(rewards: Sequence[float], groups: Sequence[int]) -> list[float]:
    """Rewards less the mean of their group."""
    of = {group: [reward for reward, own in zip(rewards, groups, strict=True) if own == group] for group in groups}
    return [reward - sum(of[group]) / len(of[group]) for reward, group in zip(rewards, groups, strict=True)]


@dataclass(frozen=True, slots=True)
class ToyChannel(WeightChannel):
    """A folder with a file for each version."""

    folder: Path

    def path(self, version: int) -> Path:
        """The logits of a version, as JSON."""
        return self.folder / f"{version}.json"


class ToyTransport:
    """Writes the logits as JSON."""

    def __init__(self, settings: Settings, setup: TransportSetup) -> None:
        self._folder = setup.scratch

    async def open(self, slots: Sequence[WeightSlot]) -> ToyChannel:
        """The channel."""
        return ToyChannel("toy", tuple(slots), self._folder)

    async def close(self) -> None:
        """Nothing is open."""


class Five:
    """The engine: draws one token after another from the same distribution."""

    def __init__(self, ends: frozenset[int]) -> None:
        self._ends, self._logits, self._version = ends, [0.0] * TOKENS, -1

    async def start(self) -> None:
        """No worker starts."""

    async def load_weights(self, channel: WeightChannel, version: int) -> None:
        """Read a version."""
        self._logits, self._version = json.loads(cast(ToyChannel, channel).path(version).read_text()), version

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        """Tokens until one ends the response."""
        draw, chances = random.Random(request.seed), probabilities(self._logits)
        tokens: list[int] = []
        while len(tokens) < request.sampling.max_new_tokens and not (tokens and tokens[-1] in self._ends):
            tokens += draw.choices(range(TOKENS), chances)
        finish = FinishReason.STOP if tokens[-1] in self._ends else FinishReason.LENGTH
        return GenerateOutput(tokens, [math.log(chances[each]) for each in tokens], finish, self._version)

    async def abort(self) -> None:
        """Every request ends at once."""

    async def close(self) -> None:
        """Nothing is open."""


class ToyRank:
    """The trainer's one rank, with the methods that the driver calls on a worker."""

    def __init__(self, setup: RankSetup) -> None:
        self._rate, self._logits, self._steps = setup.optim.lr, [0.0] * TOKENS, 0
        self._batches: Sequence[TrainBatch] = ()
        self._channel: ToyChannel | None = None

    def weight_slots(self) -> Sequence[WeightSlot]:
        """One vector."""
        return [WeightSlot("logits", (TOKENS,))]

    def connect(self, channel: ToyChannel) -> None:
        """Keep the channel."""
        self._channel = channel

    def publish(self, target: tuple[int, Sequence[int]]) -> None:
        """Write a version."""
        assert self._channel is not None
        self._channel.path(target[0]).write_text(json.dumps(self._logits))

    def begin_rollout(self, batches: Sequence[TrainBatch]) -> None:
        """Keep the batches of a rollout's steps."""
        self._batches = batches

    def train_step(self, step: int) -> StepResult:
        """One step of gradient ascent on the likelihood of tokens, times their advantage."""
        batch, gradient = self._batches[step], [0.0] * TOKENS
        chances, advantages = probabilities(self._logits), centered(batch.rewards_S, batch.group_index_S)
        start, loss = 0, 0.0
        for advantage, length in zip(advantages, batch.response_lengths_S, strict=True):
            for token in batch.tokens_T[start : start + length]:
                loss -= advantage * math.log(chances[token])
                for each in range(TOKENS):
                    gradient[each] += advantage * ((each == token) - chances[each]) / batch.step_samples
            start += length
        self._logits = [logit + self._rate * slope for logit, slope in zip(self._logits, gradient, strict=True)]
        self._steps += 1
        scores = dict.fromkeys(batch.group_index_S, 0.0)
        norm = math.sqrt(sum(slope * slope for slope in gradient))
        return StepResult({"loss": loss}, start, {"grad_norm": norm, "lr": self._rate}, scores)

    def save(self, target: tuple[Path, bool]) -> None:
        """The logits as safetensors, and the count of steps."""
        hf = target[0] / "hf"
        hf.mkdir()
        data = array("d", self._logits).tobytes()
        about = {"logits": {"dtype": "F64", "shape": [TOKENS], "data_offsets": [0, len(data)]}}
        head = json.dumps(about).encode()
        (hf / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)
        (target[0] / "toy.json").write_text(json.dumps({"logits": self._logits, "steps": self._steps}))

    def finish_save(self, wait: bool) -> bool:
        """The files are there."""
        return True

    def load(self, directory: Path) -> None:
        """Continue."""
        about = json.loads((directory / "toy.json").read_text())
        self._logits, self._steps = about["logits"], about["steps"]


class InProcess:
    """The launcher: the one worker is an object of the driver's process."""

    async def start(self, spec: WorkerGroupSpec, *, timeout_s: float | None = None) -> WorkerGroup:
        """Make the rank."""
        return OneWorker(ToyRank(cast(RankSetup, spec.arguments["setup"])))

    async def close(self) -> None:
        """Nothing is open."""


class OneWorker:
    """A group of one."""

    size = 1
    places = (Place(0),)

    def __init__(self, worker: ToyRank) -> None:
        self._worker = worker

    async def call(
        self, method: str, arguments: Sequence[object] | None = None, *, timeout_s: float | None = None
    ) -> list[object]:
        """Call the worker."""
        return [getattr(self._worker, method)(*(arguments or ()))]

    async def call_one(self, rank: int, method: str, argument: object, *, timeout_s: float | None = None) -> object:
        """Call the worker."""
        return getattr(self._worker, method)(argument)

    def unanswered(self) -> Mapping[int, str]:
        """A call ends before another can ask."""
        return {}

    async def watch(self) -> None:
        """The worker dies with the driver."""
        await asyncio.Event().wait()

    async def close(self) -> None:
        """Nothing is open."""
