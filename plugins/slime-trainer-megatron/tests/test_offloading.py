"""An optimizer that is offloaded makes the same steps, and goes on from one that is not, and the other way round."""

from pathlib import Path

import pytest
import torch
from made import dealt, setup_of, steps_of, write_model
from together import Case, by_local, train

from slime_core.errors import ConfigError
from slime_trainer_megatron.rank import MegatronRank

ONE = {"num_gpus": 1}
DEALT = {"num_gpus": 2, "use_distributed_optimizer": True}


def offloaded(part: float) -> dict[str, object]:
    return {"optimizer_cpu_offload": True, "optimizer_offload_fraction": part}


@pytest.mark.parametrize("part", [0.4, 1.0])
def test_steps_are_the_same_and_go_on_with_it_and_without(part: float, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "qwen3_moe")
    batches = [dealt(rows, 1, at)[0] for at, rows in enumerate(steps_of(model, 3))]
    settings = ({**ONE}, {**ONE, **offloaded(part)})
    setups = [setup_of(model, tmp_path, each) for each in settings]
    ranks = [MegatronRank(0, 1, setup) for setup in setups]
    adams = [len(getattr(each.optimizer, "cpu_optimizers", ())) for each in ranks[1]._optimizer._parts]
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


def test_what_is_lost_in_bf16_is_refused(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "qwen3")
    with pytest.raises(ConfigError, match="needs use_distributed_optimizer = true"):
        MegatronRank(0, 1, setup_of(model, tmp_path, {**ONE, **offloaded(1.0)}, bf16=True))


@pytest.mark.layouts
@pytest.mark.timeout(300)
@pytest.mark.parametrize("bf16", [False, True])
def test_parts_of_replicas_are_offloaded(bf16: bool, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "qwen3", tie_word_embeddings=True)
    fields = {"bf16": bf16}
    usual, offloads = (
        Case(name, model, {**DEALT, **more}, fields, save=2)
        for name, more in (("usual", {}), ("offloaded", offloaded(1.0)))
    )
    again = [
        Case(f"{name} on", model, {**DEALT, **more}, fields, load=load)
        for name, more, load in (("with", offloaded(1.0), "usual"), ("without", {}, "offloaded"))
    ]
    told = train(tmp_path, [usual, offloads, *again], ranks=2)
    far = 2**-6 if bf16 else 5e-6
    for name, mine in told.items():
        assert mine.losses == pytest.approx(told["usual"].losses[-len(mine.losses) :], rel=0, abs=far), name
        assert mine.published, name
    if not bf16:
        local = by_local(tmp_path, usual)
        assert told["offloaded"].losses == pytest.approx(local.losses, rel=0, abs=5e-6)
        assert max(float((each - local.weights[at]).abs().max()) for at, each in told["with on"].weights.items()) < 5e-5
    assert all(bool(torch.isfinite(each).all()) for each in told["with on"].weights.values())
