"""Runs ranks of many layouts in the same few processes, which import megatron-core once.

Each case trains four steps and tells, from rank 0, losses, norms and weights.

Example:

    found = train(folder, [Case("tp2", model, {"num_gpus": 2, "tensor_model_parallel_size": 2})], ranks=2)
    found["tp2"].losses, found["tp2"].weights
"""

import json
import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path

import torch
import torch.distributed as dist
from models_and_steps import Row, dealt, setup_of, steps_of
from safetensors.torch import load_file, save_file

from slime_core.roles import StepResult, TrainBatch

STEPS = 4


@dataclass(frozen=True)
class Case:
    """A layout and its training."""

    name: str
    model: Path
    settings: Mapping[str, object]
    fields: Mapping[str, object] = field(default_factory=dict)
    """Fields of the setup."""
    save: int = 0
    """Steps after which it saves; 0: never."""
    at_once: bool = False
    """Whether all steps belong to one rollout."""
    load: str = ""
    """The case whose checkpoint it continues from."""


@dataclass(frozen=True)
class CaseResult:
    """The outcome of a case."""

    losses: list[float]
    norms: list[float]
    critics: list[float]
    """The critic's loss of each step, then its gradient norm of each step; 0 without a critic."""
    weights: dict[str, torch.Tensor]
    published: bool
    """Whether the published weights equal `hf/` bitwise, if the case saved."""


def train(folder: Path, cases: Sequence[Case], ranks: int) -> dict[str, CaseResult]:
    """Run all cases, one after another, in `ranks` processes."""
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work, args=(rank, ranks, folder, cases)) for rank in range(ranks)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * ranks
    return {case.name: _read(folder / case.name) for case in cases}


def by_local(folder: Path, case: Case) -> CaseResult:
    """The same steps by one rank of the local trainer."""
    from slime_local.rank import LocalRank
    from slime_local.settings import LocalTrainerSettings

    torch.set_num_threads(1)
    setup = replaced(setup_of(case.model, folder, {}, **case.fields), settings=LocalTrainerSettings(ranks=1))
    rank = LocalRank(0, 1, setup)
    steps = steps_of(case.model, STEPS)
    batches = [_dealt(case, steps, step, shares=1)[0] for step in range(STEPS)]
    if case.at_once:
        rank.begin_rollout(batches)
    results = [rank.train_step(batch) for batch in batches]
    tokens = [sum(sum(row.mask) for row in rows) for rows in steps]
    losses = [each.metrics.get("loss", 0.0) / count for each, count in zip(results, tokens, strict=True)]
    return CaseResult(losses, *_scalars(results), unfused(dict(rank.weights())), True)


def _scalars(results: Sequence[StepResult]) -> tuple[list[float], list[float]]:
    """Gradient norms, and the critic's metrics."""
    critics = [each.scalars.get(f"critic-{what}", 0.0) for what in ("value_loss", "grad_norm") for each in results]
    return [each.scalars.get("grad_norm", 0.0) for each in results], critics


def unfused(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights with one tensor per expert; transformers fuses a layer's experts, but writes them separately."""
    found: dict[str, torch.Tensor] = {}
    for name, whole in weights.items():
        home, kind = name.rsplit(".", 1)
        if kind == "gate_up_proj":
            for expert, gate_and_up in enumerate(whole):
                gate, up = gate_and_up.chunk(2)
                found |= {f"{home}.{expert}.gate_proj.weight": gate, f"{home}.{expert}.up_proj.weight": up}
        elif kind == "down_proj":
            found |= {f"{home}.{expert}.down_proj.weight": down for expert, down in enumerate(whole)}
        else:
            found[name] = whole
    return found


def _work(rank: int, ranks: int, folder: Path, cases: Sequence[Case]) -> None:
    torch.set_num_threads(1)
    from slime_trainer_megatron.arguments import layout_of
    from slime_trainer_megatron.rank import MegatronRank, leave_ranks

    steps = {model: steps_of(model, STEPS) for model in {case.model for case in cases}}
    for case in cases:
        setup = setup_of(case.model, folder, case.settings, **case.fields)
        subject, shares, first = MegatronRank(rank, ranks, setup), layout_of(setup.settings).shares, 0
        if case.load:
            subject.load(folder / case.load / "checkpoint")
            first = next(each.save for each in cases if each.name == case.load)
        steps_done, published, count = list[StepResult](), True, max(shares) + 1
        batches = [_dealt(case, steps[case.model], step, count)[shares[rank]] for step in range(STEPS)]
        if case.at_once:
            subject.begin_rollout(batches)
        for step in range(first, STEPS):
            steps_done.append(subject.train_step(batches[step]))
            subject.finish_save(wait=False)
            if case.save == step + 1:
                published = _saved(subject, folder / case.name / "checkpoint")
        subject.finish_save(wait=True)
        weights = dict(subject.weights())
        tokens = [float(sum(sum(row.mask) for row in rows)) for rows in steps[case.model][first:]]
        losses = torch.tensor([each.metrics.get("loss", 0.0) for each in steps_done], dtype=torch.float64)
        if shares.index(shares[rank]) != rank:
            losses.zero_()
        dist.all_reduce(losses)
        if rank == 0:
            (folder / case.name).mkdir(exist_ok=True)
            save_file(weights, folder / case.name / "weights.safetensors")
            norms, critics = _scalars(steps_done)
            record = {
                "losses": (losses / torch.tensor(tokens)).tolist(),
                "norms": norms,
                "critics": critics,
                "published": published,
            }
            (folder / case.name / "record.json").write_text(json.dumps(record), "utf-8")
    dist.barrier()
    leave_ranks()


def _dealt(case: Case, steps: Sequence[Sequence[Row]], step: int, shares: int) -> list[TrainBatch]:
    return dealt(steps[step], shares, *((0, step) if case.at_once else (step, 0)))


def _saved(subject: object, target: Path) -> bool:
    from slime_trainer_megatron.rank import MegatronRank

    assert isinstance(subject, MegatronRank)
    subject.save(target)
    weights = dict(subject.weights())
    if dist.get_rank():
        return True
    files = {name: each for path in (target / "hf").glob("*.safetensors") for name, each in load_file(path).items()}
    return files.keys() == weights.keys() and all(torch.equal(each, weights[name]) for name, each in files.items())


def _read(folder: Path) -> CaseResult:
    record = json.loads((folder / "record.json").read_text("utf-8"))
    weights = load_file(folder / "weights.safetensors")
    return CaseResult(record["losses"], record["norms"], record["critics"], weights, record["published"])
