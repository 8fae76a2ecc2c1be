"""An offloaded optimizer makes the same steps; each resumes from the other's checkpoint."""

from pathlib import Path

import pytest
import torch
from layout_runs import Case, train
from models_and_steps import dealt, setup_of, steps_of, write_model

from slime_trainer_megatron.rank import MegatronRank

ONE = {"num_gpus": 1}


def offloaded(part: float) -> dict[str, object]:
    return {"optimizer_cpu_offload": True, "optimizer_offload_fraction": part}


@pytest.mark.parametrize("part", [0.4, pytest.param(1.0, marks=pytest.mark.long)])
def test_cpu_offload_does_not_change_steps(part: float, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "qwen3_moe")
    batches = [dealt(rows, 1, at)[0] for at, rows in enumerate(steps_of(model, 3))]
    settings = ({**ONE}, {**ONE, **offloaded(part)})
    setups = [setup_of(model, tmp_path, each) for each in settings]
    ranks = [MegatronRank(0, 1, setup) for setup in setups]
    adams = [
        len(getattr(each.optimizer, "cpu_optimizers", ())) for each in ranks[1].optimizer.megatron.chained_optimizers
    ]
    assert all(adams), "nothing is offloaded"
    for number, rank in enumerate(ranks):
        for batch in batches[:2]:
            rank.train_step(batch)
        rank.save(tmp_path / f"{number}")
        rank.finish_save(wait=True)
        rank.train_step(batches[2])
    wanted = {name: each.clone() for name, each in ranks[0].weights()}
    for setup in setups:
        for number in range(2):
            again = MegatronRank(0, 1, setup)
            again.load(tmp_path / f"{number}")
            again.train_step(batches[2])
            ranks.append(again)
    for rank in ranks[1:]:
        for name, each in rank.weights():
            assert (each - wanted[name]).abs().max() < 1e-6, name


@pytest.mark.layouts
@pytest.mark.timeout(300)
def test_replica_shards_are_offloaded(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "qwen3", tie_word_embeddings=True)
    fields, settings = {"bf16": True}, {"num_gpus": 2, "use_distributed_optimizer": True}
    layouts = {"usual": settings, "offloaded": {**settings, **offloaded(1.0)}}
    cases = [Case(name, model, layout, fields, save=2) for name, layout in layouts.items()]
    cases += [
        Case(f"{name} after {saved}", model, layout, fields, load=saved)
        for saved in layouts
        for name, layout in layouts.items()
    ]
    results = train(tmp_path, cases, ranks=2)
    for name, mine in results.items():
        assert mine.losses == pytest.approx(results["usual"].losses[-len(mine.losses) :], rel=0, abs=2**-6), name
        assert mine.published, name
    again, whole = results["offloaded after offloaded"].weights, results["offloaded"].weights
    assert all(torch.equal(each, again[name]) for name, each in whole.items())
