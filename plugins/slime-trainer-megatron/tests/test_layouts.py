"""Every layout against one rank of the local trainer: the same steps give the same losses, norms and weights.

Ranks import megatron-core once and pass through all layouts: a few minutes, so `make layouts` runs it.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from layout_runs import Case, CaseResult, by_local, train
from models_and_steps import STRETCHED, YARN, setup_of, write_model

from slime_core.roles import Choice, Critic, Reference, Settings, Teacher
from slime_train import GrpoSettings, PolicyLossSettings
from slime_train.estimators.max_rl import SPEC as MAX_RL_SPEC
from slime_train.estimators.ppo import PpoSettings
from slime_train.settings import GspoSettings, MisSettings, TisSettings

pytestmark = [pytest.mark.layouts, pytest.mark.timeout(1200)]

SMALL = {"max_tokens_per_gpu": 200}
"""Several micro-batches per step."""
TENSOR = {"tensor_model_parallel_size": 2}
PIPELINE = {"pipeline_model_parallel_size": 2}
CONTEXT = {"context_parallel_size": 2}
DEALT = {"use_distributed_optimizer": True}
"""Each replica keeps a part of the moments."""
SEQUENCE = {**TENSOR, "sequence_parallel": True}
EXPERT = {"expert_model_parallel_size": 2}
AGAIN = {"recompute_granularity": "selective", "recompute_modules": ["moe"]}
GSPO = {"loss": Choice("loss", "slime-train/gspo", "slime-train", GspoSettings())}
ENTROPY = {"loss": Choice("loss", "slime-train/policy_loss", "slime-train", PolicyLossSettings(entropy_coef=0.01))}
TIS = {
    "correction": Choice("correction", "slime-train/tis", "slime-train", TisSettings()),
    "calculate_per_token_loss": False,
}
"""A correction, and means of rollouts' means."""
SCALED = {
    "advantage": Choice("advantage", "slime-train/grpo", "slime-train", GrpoSettings(scale_rewards="batch")),
    "correction": Choice(
        "correction",
        "slime-train/mis",
        "slime-train",
        MisSettings(mis_upper_bound=1.1, rollout_rs={"seq_mean_k1": 1.03, "token_k3": 0.02}),
    ),
}
"""Moments of the whole rollout, and tokens and samples that are rejected."""
GPG = {"advantage": Choice("advantage", "slime-train/gpg", "slime-train", Settings())}
MAX_RL = {"advantage": Choice("advantage", "slime-train/max_rl", "slime-train", MAX_RL_SPEC.settings())}
PPO = "critic"
"""The critic's model, for cases whose setup has a critic."""
PPO_ADVANTAGE = Choice("advantage", "slime-train/ppo", "slime-train", PpoSettings())
COMPANIONS = "reference and teacher"
"""The model of reference and teacher, for cases whose setup names it."""
LAYOUTS: Mapping[str, tuple[str, int, Mapping[str, object], Mapping[str, object]]] = {
    "data": ("tied", 2, SMALL, {}),
    "data, overlapping": ("tied", 2, {**SMALL, "overlap_grad_reduce": True, "bucket_size": 5000}, {}),
    "data, dealt moments": ("tied", 2, {**SMALL, **DEALT}, {}),
    "data, dealt moments, overlapping": (
        "biased",
        2,
        {**SMALL, **DEALT, "overlap_grad_reduce": True, "bucket_size": 5000},
        {},
    ),
    "context, dealt moments": ("tied", 2, {**CONTEXT, **SMALL, **DEALT}, {}),
    "tensor": ("tied", 2, TENSOR, {}),
    "tensor, entropy, few logits": ("tied", 2, {**TENSOR, "log_probs_chunk_size": 32}, ENTROPY),
    "sequence": ("tied", 2, SEQUENCE, {}),
    "sequence, computed again": (
        "tied",
        2,
        {**SEQUENCE, "recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1},
        {},
    ),
    "attention computed again": ("tied", 2, {**TENSOR, "recompute_granularity": "selective"}, {}),
    "pipeline": ("tied", 2, {**PIPELINE, **SMALL}, {}),
    "pipeline, means of rollouts": ("tied", 2, {**PIPELINE, **SMALL}, TIS),
    "pipeline, one rollout": ("tied", 2, {**PIPELINE, **SMALL}, TIS),
    "data, scaled and rejected": ("tied", 2, SMALL, SCALED),
    "context, scaled and rejected": ("tied", 2, {**CONTEXT, **SMALL}, SCALED),
    "data, GPG": ("tied", 2, SMALL, GPG),
    "pipeline, MaxRL": ("tied", 2, {**PIPELINE, **SMALL}, MAX_RL),
    "context": ("tied", 2, {**CONTEXT, **SMALL}, {}),
    "context, whole samples": ("tied", 2, {**CONTEXT, **SMALL}, GSPO),
    "context, one rollout": ("tied", 2, {**CONTEXT, **SMALL}, TIS),
    "tensor of Qwen2": ("biased", 2, TENSOR, {}),
    "pipeline of Llama": ("stretched", 2, {**PIPELINE, **SMALL}, {}),
    "context of Llama": ("stretched", 2, CONTEXT, {}),
    f"tensor, {COMPANIONS}": ("tied", 2, TENSOR, {}),
    f"pipeline, {COMPANIONS}": ("tied", 2, {**PIPELINE, **SMALL}, {}),
    f"context, {COMPANIONS}": ("tied", 2, {**CONTEXT, **SMALL}, {}),
    f"data, {PPO}": ("tied", 2, SMALL, {}),
    f"sequence, {PPO}": ("tied", 2, {**SEQUENCE, "critic": {"max_tokens_per_gpu": 300}}, {}),
    f"pipeline, {PPO}": ("tied", 2, {**PIPELINE, **SMALL}, {}),
    f"pipeline, {PPO}, one rollout": ("tied", 2, {**PIPELINE, **SMALL}, TIS),
    f"context, {PPO}": ("biased", 2, {**CONTEXT, **SMALL}, {}),
    f"experts, {PPO}": ("experts", 2, {**EXPERT, **SMALL}, {}),
    "experts": ("experts", 2, {**EXPERT, **SMALL}, {}),
    f"experts, {COMPANIONS}": ("experts", 2, {**EXPERT, **SMALL}, {}),
    "experts on all, pipeline": ("experts", 2, {**PIPELINE, **SMALL}, {}),
    "experts and context": ("experts", 2, {**EXPERT, **CONTEXT, **SMALL}, {}),
    "experts in the place of tensor": ("experts", 2, {**SEQUENCE, **EXPERT, "expert_tensor_parallel_size": 1}, {}),
    "experts, overlapping": ("experts", 2, {**EXPERT, **SMALL, "overlap_grad_reduce": True, "bucket_size": 5000}, {}),
    "experts cut in two": ("experts", 2, {**SEQUENCE, **AGAIN}, {}),
    "experts and tensor": ("experts", 4, {**SEQUENCE, **EXPERT, **SMALL}, {}),
    "experts and pipeline": ("experts", 4, {**EXPERT, **PIPELINE, **SMALL}, {}),
    "experts over four": (
        "experts",
        4,
        {**SEQUENCE, "expert_model_parallel_size": 4, "expert_tensor_parallel_size": 1, **SMALL},
        {},
    ),
    "tensor and pipeline": ("tied", 4, {**SEQUENCE, **PIPELINE, **SMALL}, {}),
    "tensor and context": ("tied", 4, {**SEQUENCE, **CONTEXT, **SMALL}, {}),
    "data and pipeline": ("tied", 4, {**PIPELINE, **SMALL}, {}),
    "data and pipeline, dealt moments": ("tied", 4, {**PIPELINE, **SMALL, **DEALT}, {}),
    "data and tensor, dealt moments": ("biased", 4, {**SEQUENCE, **SMALL, **DEALT}, {}),
    "data and tensor": ("biased", 4, {**SEQUENCE, **SMALL}, {}),
    "glm4, sequence": ("glm4", 2, SEQUENCE, {}),
    "glm4, tensor": ("glm4", 2, TENSOR, {}),
    "glm4, context": ("glm4", 2, {**CONTEXT, **SMALL}, {}),
    "glm4, uneven stages": ("glm4", 2, {**PIPELINE, **SMALL, "num_layers_in_last_pipeline_stage": 1}, {}),
    "glm4_moe, experts": ("glm4_moe", 2, {**EXPERT, **SMALL}, {}),
    "glm4_moe, experts cut in two": ("glm4_moe", 2, {**SEQUENCE, **SMALL}, {}),
    "deepseek_v3, experts": ("deepseek_v3", 2, {**EXPERT, **SMALL}, {}),
    "deepseek_v3, experts and context": ("deepseek_v3", 2, {**EXPERT, **CONTEXT, **SMALL}, {}),
    "deepseek_v3, uneven stages": (
        "deepseek_v3",
        2,
        {**PIPELINE, **SMALL, "num_layers_in_first_pipeline_stage": 1},
        {},
    ),
    "deepseek_v3, sequence": ("deepseek_v3", 2, SEQUENCE, {}),
    "deepseek_v3, dealt moments": ("deepseek_v3", 2, {**EXPERT, **SMALL, **DEALT}, {}),
    "deepseek_v3, experts and tensor": ("deepseek_v3", 4, {**SEQUENCE, **EXPERT, **SMALL}, {}),
}
"""Model, ranks, settings, and further fields of the setup."""
CONTINUED: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "tied": {
        "tensor": TENSOR,
        "pipeline": PIPELINE,
        "data": {},
        "data, dealt moments": DEALT,
        "context, dealt moments": {**CONTEXT, **DEALT},
    },
    "experts": {
        "experts": EXPERT,
        "experts, dealt moments": {**EXPERT, **DEALT},
        "tensor": SEQUENCE,
        "pipeline": PIPELINE,
    },
    "deepseek_v3": {
        "experts": EXPERT,
        "sequence": SEQUENCE,
        "pipeline": {**PIPELINE, "num_layers_in_last_pipeline_stage": 3},
    },
}
ROUTED: Mapping[str, tuple[int, Mapping[str, object]]] = {
    "one": (1, {}),
    "experts": (2, EXPERT),
    "computed again": (
        2,
        {**PIPELINE, "recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 1},
    ),
    "context": (2, CONTEXT),
    "experts and tensor": (4, {**EXPERT, **SEQUENCE}),
}
"""Ranks and layout of cases with an auxiliary loss or with replayed routes."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("models")
    return {
        "tied": write_model(folder / "qwen3", "qwen3", tie_word_embeddings=True),
        "other": write_model(folder / "other", "qwen3", seed=1, tie_word_embeddings=True),
        "experts": write_model(folder / "qwen3_moe", "qwen3_moe"),
        "few": write_model(folder / "few", "qwen3_moe", num_experts_per_tok=1, norm_topk_prob=False),
        "biased": write_model(folder / "qwen2", "qwen2"),
        "stretched": write_model(folder / "llama", "llama", rope_parameters=STRETCHED),
        "glm4": write_model(folder / "glm4", "glm4"),
        "glm4_moe": write_model(folder / "glm4_moe", "glm4_moe"),
        "deepseek_v3": write_model(folder / "deepseek_v3", "deepseek_v3", rope_parameters=YARN),
    }


@pytest.fixture(scope="module")
def cases(models: dict[str, Path]) -> list[Case]:
    kl = {"use_kl_loss": True, "kl_loss_coef": 0.1, "kl_loss_type": "low_var_kl", "kl_coef": 0.05}
    teacher = Teacher(models["other"], kl_coef=0.1)
    beside = {
        "tied": {"reference": Reference(models["other"], **kl), "teacher": teacher},  # type: ignore[arg-type]
        "experts": {"reference": Reference(models["few"], **{**kl, "kl_loss_type": "k3+"}), "teacher": teacher},  # type: ignore[arg-type]
    }
    optim = setup_of(models["tied"], Path(), {}).optim
    critic = {
        "advantage": PPO_ADVANTAGE,
        "critic": Critic(models["other"], replace(optim, lr=1e-3), value_clip=0.2, num_critic_only_steps=1),
    }
    return [
        Case(
            name,
            models[model],
            {"num_gpus": ranks, **settings},
            {**fields, **(beside[model] if COMPANIONS in name else {}), **(critic if PPO in name else {})},
            save=4 if model.startswith(("glm4", "deepseek")) else 0,
            at_once="one rollout" in name,
        )
        for name, (model, ranks, settings, fields) in LAYOUTS.items()
    ]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, cases: list[Case]) -> dict[str, CaseResult]:
    results: dict[str, CaseResult] = {}
    for ranks in (2, 4):
        chosen = [case for case in cases if case.settings["num_gpus"] == ranks]
        results |= train(tmp_path_factory.mktemp(f"by-{ranks}"), chosen, ranks)
    return results


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory, cases: list[Case]) -> dict[str, CaseResult]:
    """Results of the local trainer, computed once for all layouts of a model and setup."""
    made: dict[str, CaseResult] = {}
    for case in cases:
        key = f"{case.model.name} {case.fields} {case.at_once}"
        made.setdefault(key, by_local(tmp_path_factory.mktemp("local"), case))
        made[case.name] = made[key]
    return made


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_train_like_one_rank(name: str, found: dict[str, CaseResult], wanted: dict[str, CaseResult]) -> None:
    mine, theirs = found[name], wanted[name]
    assert mine.losses == pytest.approx(theirs.losses, rel=0, abs=5e-6)
    assert mine.norms[0] == pytest.approx(theirs.norms[0], rel=2e-6)
    assert mine.norms == pytest.approx(theirs.norms, rel=1e-4)
    assert mine.critics == pytest.approx(theirs.critics, rel=1e-4)
    assert bool(mine.critics[-1]) == (PPO in name)
    assert mine.published, "what is published is not what hf/ has"
    biases = {each for each in mine.weights if each.endswith("e_score_correction_bias")}
    assert bool(biases) == (LAYOUTS[name][0] in ("glm4_moe", "deepseek_v3"))
    assert mine.weights.keys() - biases == theirs.weights.keys() - biases
    far = {each: float((mine.weights[each] - theirs.weights[each]).abs().max()) for each in theirs.weights}
    # GLM-4 rotates half of each key. A constant in the other half does not change the softmax, so the gradient of its
    # bias is only rounding, which AdamW turns into steps (6e-5 in one of four runs).
    limits = {each: 2e-4 if each.endswith("k_proj.bias") and "glm4" in name else 5e-5 for each in far}
    assert all(far[each] < limits[each] for each in far), max(far, key=lambda each: far[each] / limits[each])


@pytest.mark.parametrize("kind", CONTINUED)
def test_checkpoints_resume_in_any_layout(kind: str, tmp_path: Path, models: dict[str, Path]) -> None:
    model, layouts = models[kind], CONTINUED[kind]
    whole = [Case(name, model, {"num_gpus": 2, **layout}, save=2) for name, layout in layouts.items()]
    again = [
        Case(f"{name} after {saved}", model, {"num_gpus": 2, **layout}, load=saved)
        for saved in layouts
        for name, layout in layouts.items()
    ]
    results = train(tmp_path, [*whole, *again], ranks=2)
    for case in whole:
        assert results[case.name].published, f"{case.name} publishes other weights than it saves"
    for case in again:
        mine, uninterrupted = results[case.name], results[case.load]
        assert mine.losses == pytest.approx(uninterrupted.losses[2:], rel=0, abs=1e-6), case.name
        if case.name == f"{case.load} after {case.load}":
            assert mine.losses == uninterrupted.losses[2:], case.name
            same = {name: bool(torch.equal(each, uninterrupted.weights[name])) for name, each in mine.weights.items()}
            assert all(same.values()), case.name
        far = max(float((each - uninterrupted.weights[name]).abs().max()) for name, each in mine.weights.items())
        assert math.isfinite(far), case.name
        assert far < 1e-5, case.name


@pytest.mark.parametrize("what", [{"moe_aux_loss_coeff": 0.02}, {"use_rollout_routing_replay": True}])
def test_routing_is_the_same_in_any_layout(what: Mapping[str, object], tmp_path: Path, models: dict[str, Path]) -> None:
    results: dict[str, CaseResult] = {}
    for ranks in sorted({ranks for ranks, _ in ROUTED.values()}):
        (folder := tmp_path / str(ranks)).mkdir()
        # An auxiliary loss depends on its micro-batch, so each sample is one micro-batch.
        each = {"num_gpus": ranks, "max_tokens_per_gpu": 1, **what}
        cases = [
            Case(name, models["experts"], {**each, **layout})
            for name, (count, layout) in ROUTED.items()
            if count == ranks
        ]
        results |= train(folder, cases, ranks)
    usual = by_local(tmp_path, Case("usual", models["experts"], {}))
    assert results["one"].norms[0] != pytest.approx(usual.norms[0], rel=1e-3), "it makes no difference"
    for name, result in results.items():
        assert result.losses == pytest.approx(results["one"].losses, rel=0, abs=5e-6), name
        assert result.norms == pytest.approx(results["one"].norms, rel=2e-5), name
