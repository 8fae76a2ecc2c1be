"""Buffer: the default holder of finished groups, first in, first out, and its filter."""

from slime_core.buffer.fifo import FifoBuffer, FifoFilter

__all__ = ["FifoBuffer", "FifoFilter"]
