"""Run folders as a run writes them, by the same writers, and a tokenizer that any text goes through."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from slime_core.data import HfTokenizer
from slime_core.roles import Draw
from slime_core.run import GroupState, Ledger
from slime_core.sample import Group, GroupId, Sample, Status
from slime_core.telemetry import GeneratedGroups, MetricsLog, MetricsRow
from slime_view.app import make_app
from slime_view.runs import OpenRun
from slime_view.samples.store import SampleStore

TOKEN = "a-token"
SAMPLES = 4
"""A group."""


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer of bytes."""
    folder = tmp_path_factory.mktemp("model")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(["What is 2+3?"], trainer)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text('{"eos_token_id": 0}')
    return folder


class Made:
    """A run folder to which a test adds rollouts."""

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder = folder
        self.tokenizer = HfTokenizer.load(model)
        (folder / "samples").mkdir(parents=True)
        (folder / "run.toml").write_text(f"hf_checkpoint = {json.dumps(str(model))}\nseed = 3\n")

    def rollout(self, number: int, texts: Sequence[str] = ("5", "four", "six"), rounds: int = 0) -> None:
        """A rollout of two groups, of which the second is dropped, and its metrics."""
        groups = [
            Group(GroupId("train", 0, row, row), self._samples(row, texts)) for row in (2 * number, 2 * number + 1)
        ]
        for sample in (each for group in groups for each in group.samples if rounds):
            sample.metadata = {"round_number": rounds}
        kept, dropped = groups[:1], groups[1:]
        reasons = {group.id: "zero_std_1.0" for group in dropped}
        self._keep(lambda store: store.write(number, GeneratedGroups(kept, dropped, reasons), Draw(kept, [1.0])))
        self._account(number, kept, reasons)
        values = {"rollout/step": number, "rollout/raw_reward": number / 10, "train/loss": 1.0}
        self.metrics(number, {**values, "rollout/response_len/mean": 4.0, "perf/step_time": 0.5})

    def hostile(self, number: int, texts: Sequence[str]) -> None:
        """A rollout of which every text and name is one of some texts, or has one in it."""
        source, why = texts[0], texts[1]
        halves = (texts[:SAMPLES], texts[SAMPLES:])
        groups = [
            Group(GroupId(source, 0, row, row), self._samples(row, half, prompt=texts[2]))
            for row, half in zip((2 * number, 2 * number + 1), halves, strict=True)
        ]
        for sample in (each for group in groups for each in group.samples):
            sample.label, sample.failure_reason, sample.metadata = texts[3], texts[4], {texts[5]: texts[6]}
            sample.prompt = [{"role": texts[7], "content": texts[2]}] if sample.index else texts[2]
        reasons = {groups[1].id: why}
        self._keep(
            lambda store: store.write(number, GeneratedGroups(groups[:1], groups[1:], reasons), Draw(groups[:1], [1.0]))
        )
        self._account(number, groups[:1], reasons)
        self.metrics(number, {f"rollout/reward/{text}": 1.0 for text in texts})

    def evaluation(self, number: int) -> None:
        """An evaluation before a rollout."""
        self._keep(lambda store: store.write_eval(number, {"held out": self._samples(0, ["five"])}))
        self.metrics(number, {"eval/held out": number / 5})

    def metrics(self, number: int, values: dict[str, float]) -> None:
        with closing(MetricsLog(self.folder / "metrics.jsonl")) as log:
            log.append(MetricsRow(number, number + 1, time.time(), values))

    def _samples(self, row: int, texts: Sequence[str], prompt: str = "") -> list[Sample]:
        prompt, made = prompt or f"What is {row}+3?", []
        for index in range(SAMPLES):
            response = texts[(row + index) % len(texts)]
            tokens = self.tokenizer.encode(response.encode(errors="replace").decode())
            sample = Sample(
                prompt=prompt, response=response, response_length=len(tokens), label=str(row + 3), index=index
            )
            sample.tokens = [*self.tokenizer.encode(prompt), *tokens]
            sample.rollout_log_probs = [-0.5 * (at + 1) for at in range(len(tokens))]
            sample.loss_mask = [int(at > 0) for at in range(len(tokens))]
            sample.weight_versions, sample.weight_version_ends = [str(row)], [len(tokens)]
            sample.reward, sample.status = float(index % 2), Status.COMPLETED
            if index == SAMPLES - 1:
                sample.reward, sample.status, sample.failure_reason = None, Status.FAILED, "reward_timeout"
            made.append(sample)
        return made

    def _keep(self, write: Callable[[SampleStore], object]) -> None:
        async def keep() -> None:
            with SampleStore(self.folder / "samples") as store:
                await write(store)
                await store.flush()

        with ThreadPoolExecutor(1) as thread:  # a test in a browser has a loop of Playwright's in its own
            thread.submit(lambda: asyncio.run(keep())).result()

    def _account(self, number: int, kept: Sequence[Group], reasons: dict[GroupId, str]) -> None:
        ids = [*(group.id for group in kept), *reasons]
        with closing(Ledger(self.folder / "ledger.jsonl")) as ledger:
            ledger.record(GroupState.DRAWN, ids, number)
            ledger.record(GroupState.FINISHED, ids, number)
            ledger.drop(reasons, number)
            for state in (GroupState.BUFFERED, GroupState.TRAINED):
                ledger.record(state, [group.id for group in kept], number)


MakeRun = Callable[..., Made]


@pytest.fixture
def make_run(tmp_path: Path, model: Path) -> MakeRun:
    """A run folder of some rollouts."""

    def make(name: str = "first", rollouts: int = 3) -> Made:
        made = Made(tmp_path / name, model)
        made.evaluation(0)
        for number in range(rollouts):
            made.rollout(number)
        return made

    return make


@pytest.fixture
def client(make_run: MakeRun) -> Iterator[TestClient]:
    """A browser without pages, that has the token, at two runs."""
    runs = OpenRun.all([make_run("first").folder, make_run("second", 2).folder])
    for run in runs:
        assert not run.refresh()
    app = make_app(runs, TOKEN, ["127.0.0.1"])
    with TestClient(app, "http://127.0.0.1", headers={"authorization": f"Bearer {TOKEN}"}) as made:
        yield made
