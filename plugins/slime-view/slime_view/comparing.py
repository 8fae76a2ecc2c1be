"""Comparing: what `slime diff` says of two runs, as JSON, with the prompts that differ most.

Example:

    compared(Path("runs/first"), Path("runs/second"))["metrics"]
"""

from pathlib import Path

from slime_core.sample import Json
from slime_view.looking import Comparison

PROMPTS = 100
"""Prompts that are shown."""


def compared(first: Path, second: Path) -> dict[str, Json]:
    """Pairs of the first run's value and the second's.

    Raises:
        RunFolderError: a file of a run cannot be read.
    """
    found = Comparison.of(first, second)
    settings: dict[str, Json] = {key: list(pair) for key, pair in found.settings.items()}
    plugins: dict[str, Json] = {key: list(pair) for key, pair in found.plugins.items()}
    metrics: dict[str, Json] = {key: list[Json](pair) for key, pair in found.metrics.items()}
    prompts: list[Json] = [
        {"group": each.group, "rollout_id": each.rollout_id, "rewards": list[Json](each.rewards)}
        for each in found.prompts[:PROMPTS]
    ]
    return {
        "settings": settings,
        "plugins": plugins,
        "rollouts": list[Json](found.rollouts),
        "same_until": found.same_until,
        "metrics": metrics,
        "prompts": prompts,
        "of_prompts": len(found.prompts),
    }
