"""Two ranks of tensor parallelism in their own processes: they train as one rank of the local trainer does."""

from pathlib import Path

import pytest
from made import write_model
from together import Case, by_local, train


@pytest.mark.layouts
@pytest.mark.timeout(300)
def test_two_ranks_train_publish_and_go_on_as_one(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", "qwen3", tie_word_embeddings=True)
    layout = {"num_gpus": 2, "tensor_model_parallel_size": 2, "sequence_parallel": True}
    case = Case("saving", model, layout, save=2)
    told = train(tmp_path, [case, Case("going on", model, layout, load="saving")], ranks=2)
    mine, again, local = told["saving"], told["going on"], by_local(tmp_path, case)
    assert mine.losses == pytest.approx(local.losses, rel=0, abs=5e-6)
    assert mine.norms == pytest.approx(local.norms, rel=2e-6)
    assert mine.published, "what is published is not what hf/ has"
    assert again.losses == mine.losses[2:]
    assert all(bool((each == mine.weights[name]).all()) for name, each in again.weights.items())
