"""Seconds of an optimizer step: two ranks of megatron-core, two of the local trainer, and transformers with AdamW.

All train on the same 32 samples a step. Beside the clock's, the processors' seconds of all ranks are told: on a machine
that others use too, those compare.
"""

import json
import multiprocessing
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import torch
from models_and_steps import TEMPERATURE, Row, dealt, setup_of, steps_of

from megatron_bars.sizes import SIZES, write_size
from slime_core.roles import TrainerRank

WARM, TIMED = 2, 5
DATA = {"num_gpus": 2, "max_tokens_per_gpu": 4096}
SUBJECTS: Mapping[str, Mapping[str, object]] = {
    "megatron, 2 replicas": DATA,
    "megatron, 2 replicas, distributed optimizer": {**DATA, "use_distributed_optimizer": True},
    "megatron, tensor 2": {**DATA, "tensor_model_parallel_size": 2},
    "local, 2 ranks": {},
    "transformers + AdamW": {},
}


def compare(folder: Path, rounds: int) -> dict[str, object]:
    """Milliseconds of each subject, by turns; medians."""
    found: dict[str, object] = {}
    for size in SIZES:
        model = write_size(folder / size, size)
        wall: dict[str, list[float]] = {name: [] for name in SUBJECTS}
        busy: dict[str, list[float]] = {name: [] for name in SUBJECTS}
        for turn in range(rounds):
            for name in SUBJECTS:
                clock, processors = _measured(model, folder / f"{size}-{turn}-{name.replace(' ', '-')}", name)
                wall[name].append(clock)
                busy[name].append(processors)
        print(f"{size} weights, {WARM + TIMED} steps, {rounds} rounds")
        for name in SUBJECTS:
            clock, processors = (1000 * statistics.median(each[name]) for each in (wall, busy))
            found[f"{size}: {name}"] = {"ms": round(clock, 1), "cpu_ms": round(processors, 1)}
            print(f"  {name:45} {clock:8.1f} ms {processors:8.1f} ms of processors")
    return found


def _measured(model: Path, folder: Path, name: str) -> tuple[float, float]:
    """Seconds of a step, and seconds of processors."""
    folder.mkdir()
    ranks = 1 if name.startswith("transformers") else 2
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(rank, ranks, model, folder, name)) for rank in range(ranks)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    told = [json.loads((folder / f"{rank}.json").read_text("utf-8")) for rank in range(ranks)]
    return max(each["clock"] for each in told), sum(each["processors"] for each in told)


def _work(rank: int, ranks: int, model: Path, folder: Path, name: str) -> None:
    torch.set_num_threads(2 // ranks)
    steps = steps_of(model, WARM + TIMED)
    if name.startswith("transformers"):
        step = _by_transformers(model, steps)
    else:
        subject, shares = _subject(rank, model, folder, name)
        batches = [dealt(rows, max(shares) + 1, at)[shares[rank]] for at, rows in enumerate(steps)]

        def step(at: int) -> None:
            subject.train_step(batches[at])

    clock, processors = list[float](), list[float]()
    for at in range(WARM + TIMED):
        began, used = time.perf_counter(), time.process_time()
        step(at)
        clock.append(time.perf_counter() - began)
        processors.append(time.process_time() - used)
    said = {"clock": statistics.median(clock[WARM:]), "processors": statistics.median(processors[WARM:])}
    (folder / f"{rank}.json").write_text(json.dumps(said), "utf-8")


def _subject(rank: int, model: Path, folder: Path, name: str) -> tuple[TrainerRank, tuple[int, ...]]:
    if name.startswith("local"):
        from slime_local.rank import LocalRank
        from slime_local.settings import LocalTrainerSettings

        setup = replace(setup_of(model, folder, {}), settings=LocalTrainerSettings(ranks=2))
        return LocalRank(rank, 2, setup), (0, 1)
    from slime_trainer_megatron.arguments import layout_of
    from slime_trainer_megatron.rank import MegatronRank

    setup = setup_of(model, folder, SUBJECTS[name])
    return MegatronRank(rank, 2, setup), layout_of(setup.settings).shares


def _by_transformers(model: Path, steps: list[list[Row]]) -> Callable[[int], None]:
    """A policy gradient of all samples, padded to the longest, in one process with two threads."""
    from transformers import AutoModelForCausalLM

    policy = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.01)

    def step(at: int) -> None:
        rows = steps[at]
        texts = [[*row.prompt, *row.response] for row in rows]
        longest = max(map(len, texts))
        tokens = torch.tensor([text + [0] * (longest - len(text)) for text in texts])
        there = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
        logits = policy(tokens, attention_mask=there).logits[:, :-1] / TEMPERATURE
        found = torch.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None])[..., 0]
        weight = torch.zeros_like(found)
        for sample, row in enumerate(rows):
            first = len(row.prompt) - 1
            weight[sample, first : first + len(row.mask)] = torch.tensor(row.mask) * (row.reward - 0.5)
        (-(found * weight).sum() / weight.count_nonzero()).backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step
