"""The core's own choices against the contract kit: they are a plugin's like any other."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from slime_testing import (
    BufferContract,
    BufferFilterContract,
    Contract,
    DataSourceContract,
    GeneratorContract,
    GroupFilterContract,
    PluginPackageContract,
    RewardShaperContract,
    SampleFilterContract,
    TrackerContract,
)
from tests.plugin_contracts.kept import require_kept
from tests.tables import table

NUM_GPUS = 0


class TestPackage(PluginPackageContract):
    dist = "slime-core"


@table(
    "contract, choice, settings",
    [
        (DataSourceContract, "slime-core/prompts", {}),
        (GeneratorContract, "slime-core/single_turn", {}),
        (GroupFilterContract, "slime-train/nonzero_std", {}),
        (GroupFilterContract, "slime-train/nonzero_std_with_fallback", {}),
        (SampleFilterContract, "slime-train/truncated", {}),
        (RewardShaperContract, "slime-train/overlong", {"max_response_len": 8, "overlong_buffer_len": 4}),
        (BufferContract, "slime-core/fifo", {}),
        (BufferFilterContract, "slime-core/fifo", {}),
        (TrackerContract, "slime-trackers/tensorboard", {}),
    ],
)
def test_a_choice_keeps_its_contract(contract: type[Contract], choice: str, settings: Mapping[str, object]) -> None:
    require_kept(contract, choice=choice, settings=settings)


def test_a_mixture_keeps_its_contract(tmp_path: Path) -> None:
    sources: dict[str, object] = {}
    for name, count in (("few", 2), ("many", 5)):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(f'{{"input": "{name} {row}?", "label": "{row}"}}\n' for row in range(count)))
        sources[name] = {"path": str(path), "weight": len(name)}
    require_kept(DataSourceContract, choice="slime-core/mixture", settings={"sources": sources})


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", "-m", "", __file__]))
