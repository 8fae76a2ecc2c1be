"""BroadcastSender: rank 0's side of transport `distributed`. It broadcasts each bucket to all servers at once.

The process group consists of the servers that joined. It is reused while the same servers join. A server that fails
during a broadcast breaks the group for all.
"""

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore
from torch.distributed.distributed_c10d import Backend, GroupName, PrefixStore, _new_process_group_helper, _world

from slime_engine_sglang.collective.messages import DONE, Bucket, Join
from slime_engine_sglang.collective.sender import CollectiveSender, Peer, PublicationFailed, Views
from slime_engine_sglang.collective.transports import DistributedChannel

CHECK_S = 0.002  # Seconds between two checks whether a broadcast has ended and whether all servers are connected


class BroadcastSender(CollectiveSender):
    """Implements `slime_core.roles.WeightSender`."""

    def __init__(self, channel: DistributedChannel) -> None:
        super().__init__(channel)
        self._settings = channel.settings
        self.device = "cuda" if channel.settings.backend == "nccl" else "cpu"
        self._group: dist.ProcessGroup | None = None
        self._work: dist.Work | None = None
        self._name = ""
        self._members: tuple[tuple[str, int], ...] = ()
        self._numbers = itertools.count()

    def close(self) -> None:
        self._leave()
        super().close()

    def begin(self, peers: Sequence[Peer]) -> None:
        """Create a process group with these servers in this order, or reuse the current group if it matches."""
        members = tuple((peer.hello.server, peer.hello.ranks) for peer in peers)
        if self._group is not None and members == self._members:
            return
        left = self._name
        self._leave()
        settings, end = self._settings, time.monotonic() + self._settings.timeout_s
        size = 1 + sum(ranks for _, ranks in members)
        name, first = f"slime-{self._listening.getsockname()[1]}-{next(self._numbers)}", 1
        timeout = timedelta(seconds=settings.timeout_s)
        # Create the store before servers receive its address, so that they need not retry the connection.
        store = TCPStore(settings.address, 0, size, is_master=True, wait_for_workers=False, timeout=timeout)
        for peer in peers:
            peer.send_message(Join(settings.address, store.port, first, size, name, settings.backend, left))
            first += peer.hello.ranks
        result: Future[dist.ProcessGroup] = Future()
        # In a thread, which is abandoned if a server fails: joining would hang.
        arguments = (result, size, settings.backend, store, name, timeout)
        joining = threading.Thread(target=_join_group, args=arguments, daemon=True)
        joining.start()
        while not result.done():
            _require_all(peers, "while the process group was created")
            joining.join(CHECK_S)
        try:
            self._group, self._name, self._members = result.result(), name, members
        except Exception as error:
            raise PublicationFailed(f"a server did not join the process group: {error}") from error
        if missing := [peer.hello.engine for peer in peers if not peer.receives(end, DONE)]:
            raise PublicationFailed(f"the server of engine {missing[0]} did not join the process group")

    def deliver(self, peers: Sequence[Peer], views: Views, bucket: torch.Tensor) -> None:
        assert self._group is not None, "begin() runs first"
        dtype = str(views[0][1].dtype)[len("torch.") :]
        order = Bucket(self._name, [name for name, _ in views], [list(each.shape) for _, each in views], dtype)
        end = time.monotonic() + self._limits.timeout_s
        if gone := [peer.hello.engine for peer in peers if not peer.send_message(order)]:
            raise PublicationFailed(f"engine {gone[0]} disconnected")
        body = bucket[: sum(each.nbytes for _, each in views)]
        work = self._work = dist.broadcast(body, src=0, group=self._group, async_op=True)
        assert work is not None, "async_op=True"
        while not work.is_completed():
            _require_all(peers, "during a broadcast")
            if time.monotonic() > end:
                raise PublicationFailed(f"a broadcast did not end within {self._limits.timeout_s:g} s")
            time.sleep(CHECK_S)
        try:
            work.wait()
        except RuntimeError as error:
            raise PublicationFailed(f"a broadcast failed: {error}") from error
        self._work = None
        if wrong := [peer.hello.engine for peer in peers if not peer.receives(end, DONE)]:
            raise PublicationFailed(f"the server of engine {wrong[0]} did not load its weights")

    def on_failure(self) -> None:
        group, self._group, self._members = self._group, None, ()
        work, self._work = self._work, None
        if group is not None:
            threading.Thread(target=_destroy, args=(group, work), daemon=True).start()

    def _leave(self) -> None:
        group, self._group, self._members = self._group, None, ()
        if group is not None:
            _destroy(group)


def _join_group(
    result: "Future[dist.ProcessGroup]", size: int, backend: str, store: Store, name: str, timeout: timedelta
) -> None:
    """Create a group with processes outside torch's default group, in the same way as SGLang."""
    try:
        prefixed = PrefixStore(name, store)
        group, _ = _new_process_group_helper(
            size, 0, [], Backend(backend), prefixed, group_name=GroupName(name), timeout=timeout
        )
        _world.pg_group_ranks[group] = {rank: rank for rank in range(size)}
        result.set_result(group)
    except Exception as error:
        result.set_exception(error)


def _destroy(group: dist.ProcessGroup, work: dist.Work | None = None) -> None:
    """Destroy a group after its running work has timed out: earlier, torch would block all threads while it waits."""
    with suppress(RuntimeError):
        if work is not None:
            work.wait()
    with suppress(RuntimeError, ValueError):
        dist.destroy_process_group(group)


def _require_all(peers: Iterable[Peer], when: str) -> None:
    if gone := [peer.hello.engine for peer in peers if peer.is_gone()]:
        raise PublicationFailed(f"engine {gone[0]} disconnected {when}")
