"""The core's own choices against the contract kit: they are a plugin's like any other."""

import subprocess
import sys

from slime_core.testing import BufferContract, BufferFilterContract, DataSourceContract, GeneratorContract

NUM_GPUS = 0


class TestPrompts(DataSourceContract):
    choice = "slime-core/prompts"


class TestSingleTurn(GeneratorContract):
    choice = "slime-core/single_turn"


class TestFifoBuffer(BufferContract):
    choice = "slime-core/fifo"


class TestFifoFilter(BufferFilterContract):
    choice = "slime-core/fifo"


if __name__ == "__main__":
    sys.exit(subprocess.call([sys.executable, "-m", "pytest", __file__]))
