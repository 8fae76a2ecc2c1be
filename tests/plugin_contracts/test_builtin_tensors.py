"""The tensor roles of slime-train against the contract kit: `python test_builtin_tensors.py`."""

import subprocess
import sys

from slime_testing import AdvantageContract, Contract, CorrectionContract, LossContract
from tests.plugin_contracts.kept import require_kept
from tests.tables import table

NUM_GPUS = 0


@table(
    "contract, name, settings, independent",
    [
        (AdvantageContract, "grpo", {}, True),
        (AdvantageContract, "grpo", {"normalize_advantages": True}, False),
        (AdvantageContract, "grpo", {"scale_rewards": "batch"}, False),
        (AdvantageContract, "gdpo", {"reward_weights": {"right": 1.0, "short": 0.5}}, False),
        (AdvantageContract, "rloo", {}, True),
        (AdvantageContract, "max_rl", {}, True),
        (AdvantageContract, "gpg", {}, False),
        (AdvantageContract, "reinforce_plus_plus", {}, False),
        (AdvantageContract, "reinforce_plus_plus_baseline", {}, False),
        (AdvantageContract, "ppo", {}, False),
        (AdvantageContract, "ppo", {"normalize_advantages": False, "gamma": 0.9, "lambd": 0.8}, True),
        (CorrectionContract, "tis", {}, None),
        (CorrectionContract, "icepop", {}, None),
        (CorrectionContract, "mis", {}, None),
        (CorrectionContract, "mis", {"mis_level": "sequence", "mis_mode": "mask", "mis_veto_threshold": 1e-4}, None),
        (CorrectionContract, "mis", {"mis_level": "geometric", "mis_mode": "clip"}, None),
    ],
)
def test_an_estimator_or_correction_keeps_its_contract(
    contract: type[Contract], name: str, settings: dict[str, object], independent: bool | None
) -> None:
    own = {} if independent is None else {"independent_groups": independent}
    require_kept(contract, choice=f"slime-train/{name}", settings=settings, **own)


@table(
    "name, settings, policy_gradient",
    [
        ("policy_loss", {}, True),
        ("policy_loss", {"entropy_coef": 0.01, "use_opsm": True, "eps_clip_c": 3.0}, True),
        ("gspo", {}, True),
        ("cispo", {}, True),
        ("sft_loss", {}, False),
    ],
)
def test_a_loss_keeps_its_contract(name: str, settings: dict[str, object], policy_gradient: bool) -> None:
    given = {"settings": settings, "policy_gradient": policy_gradient}
    require_kept(LossContract, choice=f"slime-train/{name}", **given)


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
