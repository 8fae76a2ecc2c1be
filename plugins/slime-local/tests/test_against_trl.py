"""The gradient of a step equals the gradient of TRL's `GRPOTrainer` on Hugging Face's forward.

TRL's formulas, reduction and padding are independent of slime-core's. Skipped if TRL is not installed.
"""

import dataclasses
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from test_step import groups

from slime_core.batching.prepare import Preparation
from slime_core.batching.split import split_step
from slime_core.catalog.catalog import BuiltChoice
from slime_core.roles import AdvantageInput, Draw, Loss, Reference, TrainBatch
from slime_core.sample import Group
from slime_local.companions import CompanionModels
from slime_local.model import load_model
from slime_local.step import LocalStep
from slime_train.algorithm import Algorithm
from slime_train.losses import CispoLoss, GspoLoss, PolicyLoss
from slime_train.settings import CispoSettings, GspoSettings, PolicyLossSettings
from tests.ranks import rank_setup

BUDGET = 12
KL = Reference(Path(), use_kl_loss=True, kl_loss_coef=0.2, kl_loss_type="k3")


@dataclasses.dataclass(frozen=True)
class Case:
    """One algorithm, as it is written here and there."""

    make: Callable[[], Loss]
    trl: dict[str, object]
    reference: Reference | None = None
    per_token: bool = False
    constant_length: int | None = None


def sapo(**settings: float) -> Loss:
    """Of another plugin, so it is imported where it is tried."""
    from slime_algorithms import SapoSettings
    from slime_algorithms.sapo import SapoLoss

    return SapoLoss(SapoSettings(**settings))


CASES = {
    "grpo": Case(
        lambda: PolicyLoss(PolicyLossSettings(eps_clip=0.2, eps_clip_high=0.28)),
        {"loss_type": "grpo", "epsilon": 0.2, "epsilon_high": 0.28},
    ),
    "dual clip, mean over tokens": Case(
        lambda: PolicyLoss(PolicyLossSettings(eps_clip=0.1, eps_clip_high=0.2, eps_clip_c=1.3)),
        {"loss_type": "dapo", "epsilon": 0.1, "epsilon_high": 0.2, "delta": 1.3},
        per_token=True,
    ),
    "dr.grpo": Case(
        lambda: PolicyLoss(PolicyLossSettings()),
        {"loss_type": "dr_grpo", "epsilon": 0.2, "max_completion_length": BUDGET},
        constant_length=BUDGET,
    ),
    "a KL to the reference": Case(
        lambda: PolicyLoss(PolicyLossSettings()),
        {"loss_type": "grpo", "epsilon": 0.2, "beta": 0.2, "use_bias_correction_kl": False},
        reference=KL,
    ),
    "an unbiased KL, mean over tokens": Case(
        lambda: PolicyLoss(PolicyLossSettings()),
        {"loss_type": "dapo", "epsilon": 0.2, "beta": 0.2, "use_bias_correction_kl": True},
        reference=dataclasses.replace(KL, use_unbiased_kl=True),
        per_token=True,
    ),
    "gspo": Case(
        lambda: GspoLoss(GspoSettings(eps_clip=0.1, eps_clip_high=0.15)),
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 0.1, "epsilon_high": 0.15},
    ),
    "cispo": Case(
        lambda: CispoLoss(CispoSettings(eps_clip=1.0, eps_clip_high=0.3)),
        {"loss_type": "cispo", "epsilon_high": 1.3},
        per_token=True,
    ),
    "sapo": Case(
        lambda: sapo(tau_pos=2.0, tau_neg=3.0),
        {"loss_type": "sapo", "sapo_temperature_pos": 2.0, "sapo_temperature_neg": 3.0},
    ),
    "opsm": Case(
        lambda: PolicyLoss(PolicyLossSettings(use_opsm=True, opsm_delta=0.05)),
        {"loss_type": "grpo", "epsilon": 0.2, "off_policy_mask_threshold": 0.05},
    ),
}


@pytest.fixture(scope="module")
def batch(models: tuple[Path, Path]) -> TrainBatch:
    """Ragged samples with masked tokens in the middle, whose sampler is near the policy: within half a nat."""
    made: list[Group] = groups()
    rows = [(list(each.tokens), each.prompt_length) for group in made for each in group.samples]
    draw = torch.Generator().manual_seed(7)
    samplers = iter(log_probs_of(models[0], rows))
    for group in made:
        for sample in group.samples:
            near = next(samplers) + torch.rand(sample.response_length, generator=draw) - 0.5
            sample.rollout_log_probs = near.clamp(max=-1e-3).tolist()
    prepared = Preparation().prepare(Draw(made, [1.0] * len(made)), rollout_id=0)
    return split_step(prepared, 1, rollout_id=0)[0]


def log_probs_of(directory: Path, rows: list[tuple[list[int], int]]) -> list[torch.Tensor]:
    """Of each response, by Hugging Face's forward, one row at a time."""
    from transformers import AutoModelForCausalLM

    hf: Any = AutoModelForCausalLM.from_pretrained(directory)
    found = []
    for tokens, prompt in rows:
        with torch.no_grad():
            logits = hf(torch.tensor([tokens])).logits[0, prompt - 1 : -1].log_softmax(-1)
        found.append(logits.gather(1, torch.tensor(tokens[prompt:])[:, None])[:, 0])
    return found


def advantages(samples: int) -> torch.Tensor:
    return torch.randn(samples, generator=torch.Generator().manual_seed(5))


def ours(case: Case, models: tuple[Path, Path], batch: TrainBatch, tmp_path: Path) -> dict[str, torch.Tensor]:
    """The gradient of each weight, in several micro-batches."""

    def given(step: AdvantageInput) -> torch.Tensor:
        return advantages(len(step.rewards_S))[step.sample_index_T]

    setup = rank_setup(
        models[0], tmp_path, calculate_per_token_loss=case.per_token, constant_loss_length=case.constant_length
    )
    if case.reference is not None:
        setup = dataclasses.replace(setup, reference=dataclasses.replace(case.reference, load=models[1]))
    model = load_model(models[0])
    algorithm = Algorithm(
        setup,
        BuiltChoice("given", "tests", given),
        BuiltChoice("loss", "tests", case.make()),
        None,
        zero_without_advantage=False,
        sum_over_shares=lambda tensor: tensor,
    )
    step = LocalStep(model, algorithm, temperature=1.0, max_tokens=40)
    share = algorithm.share(batch)
    if case.reference is not None:
        share = CompanionModels(setup, lambda tensor: tensor).add_log_probs(share, step.packs(share, share.mask_T))
    (share,) = algorithm.estimate([share])
    gradient, _ = step.run(share)
    return {slot.name: slot.view(gradient) for slot in model.layout}


def theirs(case: Case, models: tuple[Path, Path], batch: TrainBatch, tmp_path: Path) -> dict[str, torch.Tensor]:
    """The same by TRL: left-padded prompts, right-padded responses."""
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig, GRPOTrainer

    hf: Any = AutoModelForCausalLM.from_pretrained(models[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = GRPOConfig(
            output_dir=str(tmp_path),
            report_to="none",
            use_cpu=True,
            bf16=False,
            per_device_train_batch_size=2,
            num_generations=2,
            gradient_accumulation_steps=1,
            **case.trl,
        )
        trainer = GRPOTrainer(
            model=hf,
            processing_class=AutoTokenizer.from_pretrained(models[0]),
            reward_funcs=lambda completions, **keys: [0.0] * len(completions),
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["a", "b"]}),
        )
    trainer.current_gradient_accumulation_steps = 1
    hf.train()
    trainer.compute_loss(hf, padded(batch, models[1])).backward()
    return {name: value.grad for name, value in hf.named_parameters() if value.grad is not None}


def padded(batch: TrainBatch, reference: Path) -> dict[str, torch.Tensor]:
    """A batch as TRL has it."""
    samples = len(batch.response_lengths_S)
    prompts = [list(batch.prompts_P[index]) for index in batch.prompt_index_S]
    wide, long = max(map(len, prompts)), max(batch.response_lengths_S)
    inputs = {
        "prompt_ids": torch.zeros(samples, wide, dtype=torch.long),
        "prompt_mask": torch.zeros(samples, wide, dtype=torch.long),
        "completion_ids": torch.zeros(samples, long, dtype=torch.long),
        "completion_mask": torch.zeros(samples, long, dtype=torch.long),
        "tool_mask": torch.zeros(samples, long, dtype=torch.long),
        "old_per_token_logps": torch.zeros(samples, long),
        "ref_per_token_logps": torch.zeros(samples, long),
    }
    start, rows = 0, []
    for sample, length in enumerate(batch.response_lengths_S):
        part = slice(start, start + length)
        tokens = batch.tokens_T[part].tolist()
        inputs["prompt_ids"][sample, wide - len(prompts[sample]) :] = torch.tensor(prompts[sample])
        inputs["prompt_mask"][sample, wide - len(prompts[sample]) :] = 1
        inputs["completion_ids"][sample, :length] = torch.tensor(tokens)
        inputs["completion_mask"][sample, :length] = 1
        inputs["tool_mask"][sample, :length] = torch.tensor(batch.loss_mask_T[part].tolist())
        inputs["old_per_token_logps"][sample, :length] = torch.tensor(batch.rollout_log_probs_T[part].tolist())
        rows.append((prompts[sample] + tokens, len(prompts[sample])))
        start += length
    for sample, found in enumerate(log_probs_of(reference, rows)):
        inputs["ref_per_token_logps"][sample, : len(found)] = found
    return {**inputs, "advantages": advantages(samples), "num_items_in_batch": inputs["tool_mask"].sum()}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", CASES)
def test_gradient_matches_trl(name: str, models: tuple[Path, Path], batch: TrainBatch, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("trl", reason="TRL is not installed; it comes with the extra bench")
    expected = theirs(CASES[name], models, batch, tmp_path)
    found = ours(CASES[name], models, batch, tmp_path)
    assert found.keys() == expected.keys()
    largest = max(float(each.abs().max()) for each in expected.values())
    for weight, value in found.items():
        torch.testing.assert_close(value, expected[weight], rtol=1e-3, atol=1e-4 * largest)
