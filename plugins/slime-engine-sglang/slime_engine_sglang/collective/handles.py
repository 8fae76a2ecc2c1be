"""HandleSender: rank 0's side of transport `tensor`. Servers get handles of a bucket's memory and copy their parts.

On CPUs, processes map the memory by name. torch's manager process frees it when no process uses it any more, even
after a crash. A handle counts as one user until it is opened, so each rank of each server gets separate handles.
"""

import base64
import io
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.reduction import ForkingPickler

import torch
import torch.multiprocessing
from torch.multiprocessing.reductions import reduce_tensor

from slime_engine_sglang.collective.messages import DONE, Handles
from slime_engine_sglang.collective.sender import CollectiveSender, Peer, PublicationFailed, Views
from slime_engine_sglang.collective.transports import TensorChannel

SHARED = "/dev/shm"
DEVICE_INDEX = 6  # Position of the GPU's index in a handle of GPU memory


class HandleSender(CollectiveSender):
    """Implements `slime_core.roles.WeightSender`."""

    def __init__(self, channel: TensorChannel) -> None:
        super().__init__(channel)
        self.device = channel.settings.device

    def bucket(self, size: int) -> torch.Tensor:
        if self.device == "cpu" and (free := shutil.disk_usage(SHARED).free) < size:
            raise RuntimeError(
                f"a bucket of {size / 1e6:.0f} MB does not fit into {SHARED}, which has {free / 1e6:.0f} MB free. Set "
                "a smaller [transport.tensor] bucket_mb, enlarge the container's shared memory (docker run "
                "--shm-size), or use another transport"
            )
        bucket = super().bucket(size)
        if not bucket.is_cuda:
            with share_by_name():
                bucket.share_memory_()  # type: ignore[no-untyped-call]
        return bucket

    def deliver(self, peers: Sequence[Peer], views: Views, bucket: torch.Tensor) -> None:
        if bucket.is_cuda:
            torch.cuda.synchronize()  # other processes do not wait for this process's copies
        end = time.monotonic() + self._limits.timeout_s
        for peer in peers:
            if not peer.send_message(Handles([pickle_views(views) for _ in range(peer.hello.ranks)])):
                raise PublicationFailed(f"engine {peer.hello.engine} disconnected")
        if wrong := [peer.hello.engine for peer in peers if not peer.receives(end, DONE)]:
            raise PublicationFailed(f"the server of engine {wrong[0]} did not load its weights")


@contextmanager
def share_by_name() -> Iterator[None]:
    """Share memory by file name inside this block: passing file descriptors needs a key that servers do not have."""
    before = torch.multiprocessing.get_sharing_strategy()  # type: ignore[no-untyped-call]
    torch.multiprocessing.set_sharing_strategy("file_system")  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.multiprocessing.set_sharing_strategy(before)  # type: ignore[no-untyped-call]


def pickle_views(views: Views) -> str:
    """Names and handles of weights, pickled in SGLang's format."""
    buffer = io.BytesIO()
    pickler = ForkingPickler(buffer)
    pickler.dispatch_table[torch.Tensor] = _reduce
    with share_by_name():
        pickler.dump(list(views))
    return base64.b64encode(buffer.getvalue()).decode()


def _reduce(tensor: torch.Tensor) -> tuple[Callable[..., object], tuple[object, ...]]:
    """Reduce a tensor as torch does, but with the GPU's UUID: its index differs between processes."""
    rebuild, arguments = reduce_tensor(tensor)  # type: ignore[no-untyped-call]
    if tensor.is_cuda:
        name = str(torch.cuda.get_device_properties(arguments[DEVICE_INDEX]).uuid)
        arguments = (*arguments[:DEVICE_INDEX], name, *arguments[DEVICE_INDEX + 1 :])
    return rebuild, arguments
