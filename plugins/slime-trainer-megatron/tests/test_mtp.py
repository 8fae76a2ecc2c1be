"""Multi-token-prediction layers: they learn as transformers' layers would, without an effect on the policy."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from layout_runs import Case, train
from models_and_steps import dealt, setup_of, steps_of, trained_on, write_model
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from slime_core.roles import RankSetup
from slime_train import Share
from slime_trainer_megatron.config_json import read_directory
from slime_trainer_megatron.packing import pack_samples
from slime_trainer_megatron.rank import MegatronRank

ONE = {"num_gpus": 1}
SMALL = {"max_tokens_per_gpu": 200}
SEQUENCE = {"tensor_model_parallel_size": 2, "sequence_parallel": True}
LAYOUTS: Mapping[str, Mapping[str, object]] = {
    "sequence": SEQUENCE,
    "context": {"context_parallel_size": 2, **SMALL},
    "pipeline": {"pipeline_model_parallel_size": 2, **SMALL},
    "experts, dealt moments": {"expert_model_parallel_size": 2, "use_distributed_optimizer": True},
    "data, overlapping": {"overlap_grad_reduce": True, "bucket_size": 5000, **SMALL},
    "sequence, computed again": {
        **SEQUENCE,
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    },
}
FURTHER = {"mtp_num_layers": 1, "mtp_loss_scaling_factor": 0.5}
FAMILIES = ("deepseek_v3", "glm4_moe")


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", request.param, num_nextn_predict_layers=1)


def unclipped(model: Path, folder: Path, settings: dict[str, object]) -> RankSetup:
    """The gradient; it is clipped in its buffer."""
    setup = setup_of(model, folder, settings)
    return replace(setup, optim=replace(setup.optim, clip_grad=0.0))


def by_transformers(model: Path, folder: Path, setup: RankSetup, share: Share) -> dict[str, torch.Tensor]:
    """The loss and its gradient by Hugging Face's names, with the layer appended to the model's layers."""
    weights = load_file(model / "model.safetensors")
    config = AutoConfig.from_pretrained(model)
    config.num_hidden_layers = 5
    longer = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    own = {name: each for name, each in weights.items() if name in longer.state_dict() or ".experts." in name}
    folder.mkdir()
    config.save_pretrained(folder)
    save_file(own, folder / "model.safetensors", {"format": "pt"})
    longer = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    layer, last = longer.model.layers[4], longer.model.layers
    longer.model.layers = last[:4]
    parts = {name: weights[f"model.layers.4.{name}.weight"].requires_grad_() for name in PARTS}
    epsilon, total = config.rms_norm_eps, torch.zeros(())
    for sample in trained_on(share, setup):
        pack = pack_samples(share, [sample], (0, 1), 1)
        tokens, length = pack.tokens, len(pack.tokens)
        with torch.no_grad():
            hidden = longer.model(tokens[None], use_cache=False).last_hidden_state
            embedded = longer.model.embed_tokens(tokens.roll(-1))[None]
        size = (hidden.shape[-1],)
        both = (F.rms_norm(embedded, size, parts["enorm"], epsilon), F.rms_norm(hidden, size, parts["hnorm"], epsilon))
        joined = torch.cat(both, -1) @ parts["eh_proj"].T
        places = longer.model.rotary_emb(joined, torch.arange(length)[None])
        mask = torch.full((length, length), -torch.inf).triu(1)[None, None]
        made = layer(joined, attention_mask=mask, position_embeddings=places)
        logits = F.rms_norm(made, size, parts["shared_head.norm"], epsilon)[0] @ longer.lm_head.weight.detach().T
        mask_T = share.mask_T[share.tokens_of([sample])]
        first = length - len(mask_T)
        for at, trained in enumerate(mask_T.tolist()):
            if trained and first + at >= 2:
                total = total + F.cross_entropy(logits[first + at - 2], tokens[first + at])
    (total / share.batch.step_tokens).backward()
    found = {f"model.layers.4.{name}.weight": each.grad for name, each in parts.items()}
    found |= {f"model.layers.4.{name}": each.grad for name, each in layer.named_parameters()}
    return {"loss": (total / share.batch.step_tokens).detach(), **found}


PARTS = ("enorm", "hnorm", "eh_proj", "shared_head.norm")


def test_mtp_gradient_matches_transformers(model: Path, tmp_path: Path) -> None:
    (rows,) = steps_of(model, 1)
    batch = dealt(rows, 1)[0]
    setup = unclipped(model, tmp_path, {**ONE, **FURTHER})
    rank = MegatronRank(0, 1, setup)
    wanted = by_transformers(model, tmp_path / "longer", setup, Share.of(batch, setup))
    result = rank.train_step(batch)
    assert result.scalars["mtp_loss"] == pytest.approx(float(wanted.pop("loss")), rel=1e-5)
    whole = read_directory(model, mtp_layers=1)
    from slime_trainer_megatron.convert import split
    from slime_trainer_megatron.model import own_parameters

    compared = 0
    for weight, parameter in own_parameters(rank.policy, whole).values():
        if weight.expert is not None or not weight.name.startswith("mtp.") or not hasattr(parameter, "main_grad"):
            continue
        for slot, mine in zip(weight.hf, split(whole, weight, parameter.main_grad), strict=True):
            theirs = wanted[slot.name]
            assert (mine / 0.5 - theirs).abs().max() <= 2e-6 * theirs.abs().max() + 1e-9, slot.name
            compared += 1
    assert compared > 10


def test_mtp_does_not_change_the_policy(model: Path, tmp_path: Path) -> None:
    (rows,) = steps_of(model, 1)
    batch = dealt(rows, 1)[0]
    setups = (unclipped(model, tmp_path, settings) for settings in (ONE, {**ONE, **FURTHER}))
    plain, rank = (MegatronRank(0, 1, setup) for setup in setups)
    before = dict(rank.weights())
    before = {name: each.clone() for name, each in before.items()}
    losses = [each.train_step(batch).metrics["loss"] for each in (plain, rank)]
    assert losses[0] == losses[1]
    weights, own = dict(rank.weights()), dict(plain.weights())
    assert own.keys() < weights.keys()
    assert all(torch.equal(each, weights[name]) for name, each in own.items())
    further = weights.keys() - own.keys()
    changed = {name for name in further if not torch.equal(weights[name], before[name])}
    assert changed == {name for name in further if not name.endswith("e_score_correction_bias")}


@pytest.mark.layouts
@pytest.mark.timeout(600)
@pytest.mark.parametrize("family", FAMILIES)
def test_layouts_train_mtp_like_one_rank(family: str, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", family, num_nextn_predict_layers=1)
    cases = [Case(name, model, {"num_gpus": 2, **FURTHER, **layout}, save=2) for name, layout in LAYOUTS.items()]
    again = [
        Case(f"{name} after sequence", model, {"num_gpus": 2, **FURTHER, **LAYOUTS[name]}, load="sequence")
        for name in ("sequence", "pipeline")
    ]
    (tmp_path / "one").mkdir()
    wanted = train(tmp_path / "one", [Case("one", model, {**ONE, **FURTHER})], ranks=1)["one"]
    results = train(tmp_path, [*cases, *again], ranks=2)
    for name, mine in results.items():
        assert mine.losses == pytest.approx(wanted.losses[-len(mine.losses) :], rel=0, abs=5e-6), name
        assert mine.norms == pytest.approx(wanted.norms[-len(mine.norms) :], rel=2e-5), name
        assert mine.published, name
        far = {each: float((mine.weights[each] - wanted.weights[each]).abs().max()) for each in wanted.weights}
        assert max(far.values()) < 5e-5, (name, max(far, key=lambda each: far[each]))
    assert results["sequence after sequence"].losses == results["sequence"].losses[2:]
