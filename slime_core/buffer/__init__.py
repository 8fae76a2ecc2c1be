"""Buffer: the default holder of finished groups, first in, first out, its filter, and the checks around any other."""

from slime_core.buffer.checked import CheckedBuffer, CheckedFilter
from slime_core.buffer.fifo import FifoBuffer, FifoFilter

__all__ = ["CheckedBuffer", "CheckedFilter", "FifoBuffer", "FifoFilter"]
