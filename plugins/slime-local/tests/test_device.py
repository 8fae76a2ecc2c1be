"""On a device that is not the CPU the local engine and trainer do the same, and leave nothing behind.

The device is one for which the CPU computes, and which refuses the CPU's tensors as a GPU does.
"""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from local_engines import worker_of
from test_rank import batches, group

from slime_core.errors import ModelError
from slime_core.roles import (
    Choice,
    Critic,
    GenerateOutput,
    GenerateRequest,
    RankSetup,
    Reference,
    SamplingParams,
    StepResult,
    TrainBatch,
)
from slime_local.batch import DecodeResult, StopConditions
from slime_local.decode import Decoder
from slime_local.device import use_device
from slime_local.model import GroupTokens, load_model
from slime_local.rank import LocalRank
from slime_local.request_queue import Flags, Turn
from slime_local.settings import LocalTrainerSettings
from slime_testing.tensors import second_device
from slime_train.estimators.ppo import PpoSettings
from tests.channels import opened, sent
from tests.ranks import optim, rank_setup
from tests.tables import table

PPO = Choice("advantage", "ppo", "slime-core", PpoSettings())
ROUNDING = {False: 1e-5, True: 1e-3}
"""Of log-probs that are decoded there, without bf16 and with it: on a GPU few kernels count, and sums differ."""
PROMPTS = ([5, 6, 7], [5, 6, 9, 11])


@pytest.fixture
def only_second_device() -> Iterator[str]:
    """The device; what is made of nothing lies there until the test ends, if the test says so."""
    with second_device.available() as name, torch.autograd.set_multithreading_enabled(False):
        yield name
    torch.set_default_device(None)


def batch() -> TrainBatch:
    return batches(
        1, [group(number, [float(index == number) for index in range(3)], 7, vocab=61) for number in (0, 1)]
    )[0]


def on(device: str, setup: RankSetup) -> LocalRank:
    assert isinstance(setup.settings, LocalTrainerSettings)
    return LocalRank(0, 1, replace(setup, settings=setup.settings.model_copy(update={"device": device})))


def trained(device: str, setup: RankSetup, folder: Path) -> tuple[list[StepResult], dict[str, torch.Tensor]]:
    """Two steps, a checkpoint, a third step of a new rank that goes on from it."""
    rank = on(device, setup)
    results = [rank.train_step(batch()) for _ in range(2)]
    rank.save(folder)
    again = on(device, setup)
    again.load(folder)
    return [*results, again.train_step(batch()), again.measure(batch())], {n: w.cpu() for n, w in again.weights()}


@table(
    "settings, fields",
    [
        ({}, {}),
        ({"max_tokens_per_micro_batch": 1, "gradient_checkpointing": True}, {}),
        ({"lora_rank": 2}, {}),
        ({"freeze_params_name_list": "embed"}, {"reference": {"kl_coef": 0.1, "use_kl_loss": True}}),
        ({}, {"advantage": PPO, "critic": True}),
        ({}, {"bf16": True}),
        ({}, {"reference": {"update_interval": 1, "kl_coef": 0.1}}),
    ],
)
def test_training_on_a_device_equals_the_cpu(
    tiny_hf: Callable[..., Path],
    tmp_path: Path,
    only_second_device: str,
    settings: dict[str, object],
    fields: dict[str, object],
) -> None:
    model = tiny_hf("qwen3", tie_word_embeddings=True)
    if "reference" in fields:
        fields = {**fields, "reference": Reference(model, **fields["reference"])}  # type: ignore[arg-type]
    if "critic" in fields:
        fields = {**fields, "critic": Critic(model, optim(1e-3), value_clip=0.2, num_critic_only_steps=0)}
    folder = Path(tempfile.mkdtemp(dir=tmp_path))
    setup = rank_setup(model, folder, settings=settings, **fields)
    here = trained("cpu", setup, folder / "here")
    there = trained(only_second_device, setup, folder / "there")
    assert there[0] == here[0]
    assert there[1].keys() == here[1].keys()
    for name, weights in here[1].items():
        assert torch.equal(there[1][name], weights), name


@pytest.mark.parametrize(("family", "bf16"), [("qwen3", False), ("qwen3", True), ("gpt2", False)])
def test_decoding_on_a_device_equals_the_cpu(
    tiny_hf: Callable[..., Path], tmp_path: Path, only_second_device: str, family: str, bf16: bool
) -> None:
    model = tiny_hf(family, tie_word_embeddings=True)
    Flags.create(tmp_path / "flags", workers=1)
    sampling = [
        SamplingParams(20),
        SamplingParams(9, top_p=0.8, min_p=0.01, repetition_penalty=1.2, logit_bias={7: 1.0}, min_new_tokens=3),
        SamplingParams(70, temperature=0.0, top_k=5),
    ]
    requests = {n: GenerateRequest(PROMPTS[n % 2], sampling[n % 3], seed=n) for n in range(8)}
    answers = []
    for device in ("cpu", only_second_device):
        worker = worker_of(model, tmp_path, eos_token_ids={2}, bf16=bf16, device=device)
        worker.load_checkpoint()
        decoded = worker.decode(Turn(requests)).ended
        while len(decoded) < len(requests):
            decoded |= worker.decode(Turn({})).ended
        answers.append(decoded)
    here, there = answers
    for number, answer in here.items():
        other = there[number]
        assert isinstance(answer, GenerateOutput)
        assert isinstance(other, GenerateOutput)
        assert (answer.tokens, answer.finish) == (other.tokens, other.finish)
        assert answer.log_probs == pytest.approx(other.log_probs, abs=ROUNDING[bf16])


def test_device_engine_loads_published_weights(
    tiny_hf: Callable[..., Path], tmp_path: Path, only_second_device: str
) -> None:
    model = tiny_hf("qwen3", tie_word_embeddings=True)
    rank = on(only_second_device, rank_setup(model, tmp_path))
    rank.train_step(batch())
    channel = sent(opened(tmp_path, rank.weight_slots()), 1, rank.weights())
    Flags.create(tmp_path / "flags", workers=1)
    worker = worker_of(model, tmp_path, device=only_second_device)
    worker.load_weights((channel, 1))
    [answer] = worker.decode(Turn({0: GenerateRequest(PROMPTS[0], SamplingParams(5), seed=1)})).ended.values()
    assert isinstance(answer, GenerateOutput)
    assert answer.weight_version == 1
    assert len(answer.tokens) == 5


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@table("bf16", [False, True])
def test_cuda_graph_decode_matches_the_model(tiny_hf: Callable[..., Path], bf16: bool) -> None:
    directory = tiny_hf("qwen3", tie_word_embeddings=True)
    use_device("cuda", rank=0)
    try:
        model = load_model(directory, bf16=bf16)
        requests = [GenerateRequest(PROMPTS[n % 2], SamplingParams(20 + 9 * n), seed=n) for n in range(14)]
        decoder = Decoder(model, StopConditions())
        for weights in (model.flat.clone(), model.flat * 1.1):
            model.bind(model.flat.copy_(weights))
            decoder.admit(dict(enumerate(requests)))
            found = dict[int, DecodeResult]()
            while decoder.busy:
                found |= decoder.step()
            for number, request in enumerate(requests):
                scored = model.log_probs([GroupTokens(request.prompt, [found[number].tokens])]).log_probs_T
                assert found[number].log_probs == pytest.approx(scored.tolist(), abs=100 * ROUNDING[bf16])
    finally:
        torch.set_default_device(None)


def test_missing_device_is_refused() -> None:
    if torch.cuda.is_available():
        pytest.skip("it sees one")
    with pytest.raises(ModelError, match=r"device = 'cuda': torch .* finds no such device; .* device = \"cpu\""):
        use_device("cuda", rank=0)
