"""First-party packages and choices against the contract kit: `python test_first_party.py`."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from slime_core.sample import Json
from slime_testing import (
    AdvantageContract,
    BatchTransformContract,
    BufferContract,
    BufferFilterContract,
    CheckStatus,
    Contract,
    CorrectionContract,
    DataSourceContract,
    GeneratorContract,
    GroupFilterContract,
    LossContract,
    PluginPackageContract,
    RewardContract,
    RewardShaperContract,
    SampleFilterContract,
    TrackerContract,
    TransportContract,
    make_sample,
)
from tests.tables import table

NUM_GPUS = 0
WHOLE = {"independent_groups": True}
"""An estimator that treats each group alone."""
BATCH = {"independent_groups": False}
SMALL = {"capacity": 5, "max_uses": 3, "max_staleness": 2, "replay_ratio": 1.5}
SCORES = {"advantage": 1.0, "difficulty": 0.5, "recency": 1.0, "staleness": 0.5}
LENGTHS = {"max_response_len": 8, "overlong_buffer_len": 4}
ENTROPY = {"entropy_coef": 0.01, "use_opsm": True, "eps_clip_c": 3.0}
VETO = {"mis_level": "sequence", "mis_mode": "mask", "mis_veto_threshold": 1e-4}
GRADIENT = {"policy_gradient": True}


def graded(good: str, bad: str, label: str | None = None, **metadata: Json) -> dict[str, object]:
    """A right and a wrong response for the contract of rewards."""
    samples = [make_sample(response=each, label=label, metadata=metadata) for each in (good, bad)]
    return {"good": samples[0], "bad": samples[1], "needs_label": label is not None}


HALF = graded(r"Half of one is $\boxed{\frac{1}{2}}$.", r"Half of one is $\boxed{2}$.", "0.5")
FOX = graded("the brown fox", "a dog", "a quick brown fox")
COMMAS = graded("No commas here.", "Commas, here.", instruction_id_list=["punctuation:no_comma"])
CHOICES = [
    (DataSourceContract, "slime-core/prompts", {}, {}),
    (GeneratorContract, "slime-core/single_turn", {}, {}),
    (GroupFilterContract, "slime-train/nonzero_std", {}, {}),
    (GroupFilterContract, "slime-train/nonzero_std_with_fallback", {}, {}),
    (SampleFilterContract, "slime-train/truncated", {}, {}),
    (BufferContract, "slime-core/fifo", {}, {}),
    (BufferFilterContract, "slime-core/fifo", {}, {}),
    (BufferContract, "slime-buffer-priority/priority", {}, {}),
    (BufferContract, "slime-buffer-priority/priority", {"max_uses": 1, "replay_ratio": 1.0}, {}),
    (BufferContract, "slime-buffer-priority/priority", {**SMALL, "scores": SCORES}, {}),
    (BufferContract, "slime-buffer-priority/priority", {**SMALL, "quotas": {"kit": 0.5}}, {}),
    (BufferContract, "slime-buffer-priority/priority", {**SMALL, "order": "fifo"}, {}),
    (RewardContract, "slime-reward-math/math", {}, HALF),
    (RewardContract, "slime-reward-math/dapo", {}, graded("So.\nAnswer: 34", "So.\nAnswer: 35", "34")),
    (RewardContract, "slime-reward-math/gpqa", {}, graded("The answer is B.", "The answer is C.", "B")),
    (RewardContract, "slime-reward-math/f1", {}, FOX),
    (RewardContract, "slime-reward-math/ifbench", {}, COMMAS),
    (RewardContract, "slime-reward-math/format", {}, graded(r"<think>2+2</think> \boxed{4}", "4")),
    (TrackerContract, "slime-trackers/tensorboard", {}, {}),
    (RewardShaperContract, "slime-train/overlong", LENGTHS, {}),
    (AdvantageContract, "slime-train/grpo", {}, WHOLE),
    (AdvantageContract, "slime-train/grpo", {"normalize_advantages": True}, BATCH),
    (AdvantageContract, "slime-train/grpo", {"scale_rewards": "batch"}, BATCH),
    (AdvantageContract, "slime-train/gdpo", {"reward_weights": {"right": 1.0, "short": 0.5}}, BATCH),
    (AdvantageContract, "slime-train/rloo", {}, WHOLE),
    (AdvantageContract, "slime-train/max_rl", {}, WHOLE),
    (AdvantageContract, "slime-train/gpg", {}, BATCH),
    (AdvantageContract, "slime-train/reinforce_plus_plus", {}, BATCH),
    (AdvantageContract, "slime-train/reinforce_plus_plus_baseline", {}, BATCH),
    (AdvantageContract, "slime-train/ppo", {}, BATCH),
    (AdvantageContract, "slime-train/ppo", {"normalize_advantages": False, "gamma": 0.9, "lambd": 0.8}, WHOLE),
    (CorrectionContract, "slime-train/tis", {}, {}),
    (CorrectionContract, "slime-train/icepop", {}, {}),
    (CorrectionContract, "slime-train/mis", {}, {}),
    (CorrectionContract, "slime-train/mis", VETO, {}),
    (CorrectionContract, "slime-train/mis", {"mis_level": "geometric", "mis_mode": "clip"}, {}),
    (LossContract, "slime-train/policy_loss", {}, GRADIENT),
    (LossContract, "slime-train/policy_loss", ENTROPY, GRADIENT),
    (LossContract, "slime-train/gspo", {}, GRADIENT),
    (LossContract, "slime-train/cispo", {}, GRADIENT),
    (LossContract, "slime-train/sft_loss", {}, {"policy_gradient": False}),
    (LossContract, "slime-algorithms/sapo", {}, GRADIENT),
    (LossContract, "slime-algorithms/gmpo", {}, GRADIENT),
    (LossContract, "slime-algorithms/dppo", {}, GRADIENT),
    (LossContract, "slime-algorithms/dppo", {"divergence": "kl"}, GRADIENT),
    (AdvantageContract, "slime-algorithms/opo", {}, {}),
    (AdvantageContract, "slime-algorithms/pass_at_k", {"k": 2}, {}),
    (AdvantageContract, "slime-agent-openai/turn_level", {}, {}),
    (RewardShaperContract, "slime-agent-openai/agent_split", {}, {}),
    (SampleFilterContract, "slime-agent-openai/agent_last_branch", {}, {}),
    (BatchTransformContract, "slime-agent-openai/turn_rewards", {}, {}),
    (TransportContract, "slime-engine-sglang/distributed", {}, {}),
    (TransportContract, "slime-engine-sglang/tensor", {}, {}),
]
PACKAGES = (
    "agent-openai",
    "algorithms",
    "buffer-priority",
    "compat",
    "engine-sglang",
    "reward-math",
    "trackers",
    "view",
)


def require_kept(contract: type[Contract], **attributes: object) -> None:
    """Fail with every check that the subject breaks, and if no check passed."""
    results = type("Subject", (contract,), attributes).report()
    assert [each for each in results if each.status is CheckStatus.FAILED] == []
    assert any(each.status is CheckStatus.PASSED for each in results)


@table("contract, choice, settings, attributes", CHOICES)
def test_a_choice_keeps_its_contract(
    contract: type[Contract], choice: str, settings: Mapping[str, object], attributes: Mapping[str, object]
) -> None:
    require_kept(contract, choice=choice, settings=settings, **attributes)


@table("name", ["core", *PACKAGES])
def test_a_package_keeps_its_contract(name: str) -> None:
    require_kept(PluginPackageContract, dist=f"slime-{name}")


def test_a_mixture_keeps_its_contract(tmp_path: Path) -> None:
    sources: dict[str, object] = {}
    for name, count in (("few", 2), ("many", 5)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(f'{{"input": "{name} {row}?", "label": "{row}"}}\n' for row in range(count)))
        sources[name] = {"path": str(path), "weight": len(name)}
    require_kept(DataSourceContract, choice="slime-core/mixture", settings={"sources": sources})


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
