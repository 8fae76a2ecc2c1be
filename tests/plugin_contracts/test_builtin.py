"""The core's own choices against the contract kit: they are a plugin's like any other."""

import atexit
import functools
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from slime_core.testing import BufferContract, BufferFilterContract, DataSourceContract, GeneratorContract

NUM_GPUS = 0


class TestPrompts(DataSourceContract):
    choice = "slime-core/prompts"


@functools.cache
def members() -> dict[str, object]:
    """Two files, until the process ends."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    made: dict[str, object] = {}
    for name, count in (("few", 2), ("many", 5)):
        path = Path(folder.name) / f"{name}.jsonl"
        path.write_text("".join(f'{{"input": "{name} {row}?", "label": "{row}"}}\n' for row in range(count)))
        made[name] = {"path": str(path), "weight": len(name)}
    return made


class TestMixture(DataSourceContract):
    choice = "slime-core/mixture"

    @property
    def settings(self) -> Mapping[str, object]:  # type: ignore[override]
        return {"sources": members()}


def sums(seed: int, index: int) -> dict[str, object]:
    """A row."""
    return {"input": f"{seed % 100} + {index} =", "label": str(seed % 100 + index)}


class TestGenerated(DataSourceContract):
    choice = "slime-core/generated"
    settings: ClassVar[Mapping[str, object]] = {"rows": f"{__file__}:sums", "size": 4}


class TestSingleTurn(GeneratorContract):
    choice = "slime-core/single_turn"


class TestFifoBuffer(BufferContract):
    choice = "slime-core/fifo"


class TestFifoFilter(BufferFilterContract):
    choice = "slime-core/fifo"


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", __file__]))
