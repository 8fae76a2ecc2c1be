"""Mixtures of experts on one rank against transformers: log-probs, the auxiliary loss, and replayed routes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from models_and_steps import dealt, setup_of, steps_of, trained_on, write_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from slime_core.errors import ContractError
from slime_core.roles import SampleField, TrainBatch
from slime_train import Share
from slime_trainer_megatron import compat
from slime_trainer_megatron.packing import pack_samples
from slime_trainer_megatron.rank import MegatronRank

ONE = {"num_gpus": 1, "max_tokens_per_gpu": 1}
COEFFICIENT = 0.05


@pytest.fixture(scope="module", params=[{}, {"norm_topk_prob": False}])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model", "qwen3_moe", **request.param)


@pytest.fixture(scope="module")
def batch(model: Path) -> TrainBatch:
    (rows,) = steps_of(model, 1)
    return dealt(rows, 1)[0]


def theirs(model: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)


def logits_of(rank: MegatronRank, share: Share, sample: int, *, replays: bool) -> torch.Tensor:
    pack = rank.passes.pack(share, [sample])
    assert (pack.routes is not None) == replays
    policy = rank.policy
    with compat.suppress_warnings(), torch.no_grad():
        policy.begin(pack, 0.0, trains=False)
        return policy.run_pack(pack)[:, 0] @ policy.output_weight().T


def test_auxiliary_loss_is_averaged_over_step_tokens(model: Path, batch: TrainBatch, tmp_path: Path) -> None:
    # The gradient is clipped in its buffer.
    whole = {"optim": replace(setup_of(model, tmp_path, ONE).optim, clip_grad=0.0)}
    setup = setup_of(model, tmp_path, {**ONE, "moe_aux_loss_coeff": COEFFICIENT}, **whole)
    plain = MegatronRank(0, 1, setup_of(model, tmp_path, ONE, **whole))
    rank, share = MegatronRank(0, 1, setup), Share.of(batch, setup)
    result = rank.train_step(batch)
    plain.train_step(batch)
    gradients = {
        name: parameter.main_grad - dict(plain.policy.named_parameters())[name].main_grad
        for name, parameter in rank.policy.named_parameters()
        if "router" in name
    }
    transformer = theirs(model)
    chosen, total = transformer.config.num_experts_per_tok, torch.zeros(())
    packs = [pack_samples(share, [sample], (0, 1), 1) for sample in trained_on(share, setup)]
    tokens = sum(pack.texts for pack in packs)
    for pack in packs:
        found = transformer(pack.tokens[None], output_router_logits=True).router_logits
        for logits in found:
            total = total + switch_loss(logits, chosen) * (pack.texts / tokens)
    total.backward()
    assert result.scalars["load_balancing_loss"] == pytest.approx(float(total.detach()) / len(found), rel=1e-5)
    for name, gradient in gradients.items():
        layer = int(name.split(".")[2])
        wanted = transformer.get_parameter(f"model.layers.{layer}.mlp.gate.weight").grad
        assert wanted is not None
        assert (gradient - COEFFICIENT * wanted).abs().max() < 1e-6, name
        assert wanted.abs().max() > 1e-3


def switch_loss(logits: torch.Tensor, chosen: int) -> torch.Tensor:
    """The loss of Fedus et al. 2021 (arXiv:2101.03961), section 2.2, with several experts per token."""
    shares = logits.softmax(-1)
    count = torch.zeros_like(logits).scatter(1, logits.topk(chosen).indices, 1.0)
    return logits.shape[1] * (count.mean(0) / chosen * shares.mean(0)).sum()


@contextmanager
def routed(model: PreTrainedModel, routes: torch.Tensor, *, normalised: bool) -> Iterator[None]:
    """Let routers choose these experts [T, layers, k]."""
    hooks = []
    for layer, each in enumerate(model.model.layers):

        def choose(router: torch.nn.Module, given: object, found: tuple[torch.Tensor, ...], at: int = layer) -> object:
            logits = found[0]
            experts = torch.cat([routes[:, at], found[2][len(routes) :]])
            weights = logits.softmax(-1).gather(1, experts)
            return logits, weights / weights.sum(-1, keepdim=True) if normalised else weights, experts

        hooks.append(each.mlp.gate.register_forward_hook(choose))
    yield
    for hook in hooks:
        hook.remove()


def test_routed_experts_are_replayed(model: Path, batch: TrainBatch, tmp_path: Path) -> None:
    setup = setup_of(model, tmp_path, {**ONE, "use_rollout_routing_replay": True})
    rank, share = MegatronRank(0, 1, setup), Share.of(batch, setup)
    given = batch.fields_S[SampleField.ROLLOUT_ROUTED_EXPERTS]
    sample = next(at for at, routes in enumerate(given) if routes)
    tokens = pack_samples(share, [sample], (0, 1), 1).tokens
    routes = torch.tensor(given[sample]).view(len(tokens) - 1, 4, 2)
    transformer = theirs(model)
    with torch.no_grad():
        usual = transformer(tokens[None]).logits[0]
        with routed(transformer, routes, normalised=transformer.config.norm_topk_prob):
            wanted = transformer(tokens[None]).logits[0]
    found = logits_of(rank, share, sample, replays=True)
    assert (found - wanted)[:-1].abs().max() < 2e-5
    assert (usual - wanted).abs().max() > 1e-2


def test_routes_of_another_model_are_refused(model: Path, batch: TrainBatch, tmp_path: Path) -> None:
    rank = MegatronRank(0, 1, setup_of(model, tmp_path, {**ONE, "use_rollout_routing_replay": True}))
    given = batch.fields_S[SampleField.ROLLOUT_ROUTED_EXPERTS]
    short = {SampleField.ROLLOUT_ROUTED_EXPERTS: tuple(None if each is None else tuple(each)[2:] for each in given)}
    with pytest.raises(ContractError, match=r"expected \d+ tokens \(all but the last\) x 4 layers x 2 experts"):
        rank.train_step(replace(batch, fields_S=short))
