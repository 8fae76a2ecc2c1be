"""TrainerContract: the requirements on the ranks of every trainer, TRN-001 to TRN-013, with a tiny model.

TRN-001 to TRN-009 use one rank in this process, the others several ranks in separate processes.

Example:

    class TestMine(TrainerContract):
        choice = "slime-trainer-mine/mine"
        settings = {"ranks": 1}
        multi_rank_settings = {"ranks": 2}        # for checks with several ranks
        other_layout_settings = {"ranks": 1}      # for ranks that load a checkpoint of several ranks
"""

import asyncio
import math
import shutil
import tempfile
import weakref
from array import array
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar, cast
from unittest import SkipTest

from slime_core.batching.prepare import check_slots, check_step_result
from slime_core.batching.split import Shares
from slime_core.catalog import RegisteredChoice
from slime_core.errors import ConfigError, ContractError, ModelError, NonFiniteError
from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import (
    Choice,
    LauncherSetup,
    Optim,
    PreparesRollout,
    RankSetup,
    SavesAsync,
    Settings,
    StepResult,
    TrainBatch,
    TrainerRank,
    TrainerSpec,
    WorkerGroup,
    WorkerGroupSpec,
    file_rendezvous,
)
from slime_testing.contract import check, require
from slime_testing.role import NOWHERE, SEED, RoleContract
from slime_testing.serving import write_tiny_model
from slime_testing.tensors.batches import equal, finite, need_torch

if TYPE_CHECKING:
    import torch


TARGET = "slime_testing.tensors.reporting_host:ReportingHost"
LIMIT_S = 200.0
"""Seconds within which ranks must start, and return from a call."""
ResultT = TypeVar("ResultT")


def ranks(
    registered: RegisteredChoice,
    setup: RankSetup,
    size: int,
    use: Callable[[WorkerGroup], Awaitable[ResultT]],
) -> ResultT:
    """The result of `use` with a group of ranks in local processes.

    Raises:
        WorkerError: a rank could not be built, raised, died or timed out.
    """

    async def run(scratch: Path) -> ResultT:
        launcher = LocalLauncher(LauncherSetup(_make, setup.seed, scratch=scratch))
        own = replace(setup, rendezvous=file_rendezvous(scratch / "rendezvous"))
        trainer = Choice("trainer", registered.qualified, registered.plugin, setup.settings)
        spec = WorkerGroupSpec("kit", size, TARGET, {"trainer": trainer, "setup": own}, preload=_preload(registered))
        try:
            return await use(await launcher.start(spec, timeout_s=LIMIT_S))
        finally:
            await launcher.close()

    with tempfile.TemporaryDirectory(prefix="slime-kit-") as scratch:
        return asyncio.run(run(Path(scratch)))


async def call(group: WorkerGroup, method: str, arguments: Sequence[object] | None = None) -> list[object]:
    """Call a method on every rank, within the kit's time limit."""
    return await group.call(method, arguments, timeout_s=LIMIT_S)


def _make(role: str, name: str, **settings: object) -> object:
    raise LookupError(f"the contract kit's launcher cannot build {role} {name!r}")


def _preload(registered: RegisteredChoice) -> tuple[str, ...]:
    return cast(TrainerSpec, registered.spec).preload


Numbers = dict[str, list[float]]
METHODS = ("weight_slots", "train_step", "weights", "save", "load")
PICKLES = (".pt", ".pth", ".bin", ".pkl", ".pickle")
OPTIM = Optim(1e-3, 0, "constant", 0.0, 0.9, 0.95, 1e-8, 0.0, 1.0, train_steps=10)
"""Optimizer settings with a positive learning rate and no weight decay."""


class TrainerContract(RoleContract[TrainerSpec]):
    """Contract of trainers: inherit it, and set `choice` and `settings` for one rank."""

    kind = TrainerSpec
    exact: ClassVar[bool] = True
    """Whether a resumed rank continues bit for bit. Set False for kernels that add in random order."""
    multi_rank_settings: ClassVar[Mapping[str, object]] = {}
    """Settings for several ranks, added to `settings`; empty if the default settings use several ranks."""
    other_layout_settings: ClassVar[Mapping[str, object] | None] = None
    """Settings, added to `settings`, of another layout that loads a checkpoint of several ranks; None: skip TRN-012.
    `slime plugins check` then sets the spec's `workers_key` to 1."""

    def rank_setup(self) -> RankSetup:
        """Setup of a rank, with a Llama with 64 tokens, slime-train's advantage and loss, and weight decay 0.

        Override it for trainers that do not support this model.
        """
        catalog, choices = self._catalog(), {"advantage": "grpo", "loss": "policy_loss"}
        found = {role: catalog.find(role, f"slime-train/{name}") for role, name in choices.items()}
        advantage, loss = (Choice(role, each.qualified, each.plugin, each.spec.model()) for role, each in found.items())
        return RankSetup(
            hf_checkpoint=write_tiny_model(self._folder / "model"),
            optim=OPTIM,
            advantage=advantage,
            loss=loss,
            correction=None,
            plugins=catalog.plugin_set,
            settings=self.make_settings(),
            rollout_temperature=1.0,
            calculate_per_token_loss=True,
            seed=SEED,
            rendezvous=file_rendezvous(self._folder / "rendezvous"),
        )

    @cached_property
    def _folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="slime-kit-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder

    @check("TRN-001")
    def test_the_factory_builds_a_rank(self) -> None:
        """The core calls `factory(rank, world_size, setup)` in the rank's process, and then the rank's methods.

        These are plain `def`: `weight_slots`, `train_step`, `weights`, `save` and `load`.
        """
        rank: object = self._rank()
        missing = [name for name in METHODS if not callable(getattr(rank, name, None))]
        require(not missing, f"{type(rank).__name__} has no method {', '.join(missing)}")

    @check("TRN-002", needs=("TRN-001",))
    def test_the_slots_describe_the_weights(self) -> None:
        """`weight_slots` lists the weights for engines. `weights` yields each one once, with its shape and dtype."""
        from slime_train.rank_host import checked_buckets

        rank = self._rank()
        slots = check_slots(rank.weight_slots(), plugin=self.registered.plugin)
        for _ in checked_buckets(slots, rank.weights(), plugin=self.registered.plugin, whole=True):
            pass

    @check("TRN-003", needs=("TRN-001",))
    def test_a_step_changes_the_weights_and_returns_metrics(self) -> None:
        """`train_step` applies one optimizer step, and returns scalars and metrics summed over the trained tokens.

        Its `scores`, for buffers, are the mean absolute advantages of the rank's groups, by `group_index_S`.
        """
        rank = self._rank()
        before = _copy_weights(rank)
        result = self._step(rank, batch())
        same = all(equal(one, other) for one, other in zip(before, _copy_weights(rank), strict=True))
        require(not same, "train_step() changed no weight")
        for name, value in {**result.metrics, **result.scalars}.items():
            require(math.isfinite(value), f"metric {name} is {value}; expected a finite number")
        most = sum(batch().loss_mask_T)
        require(0 < result.tokens <= most, f"it reports {result.tokens} trained tokens; expected 1 to {most}")

    @check("TRN-004", needs=("TRN-003",))
    def test_a_resumed_rank_continues_exactly(self) -> None:
        """A resumed run must equal an uninterrupted one. Save weights, moments, learning rate schedule and step count.

        Files that are written in the background (`SavesAsync`) must contain the state at `save`, without later steps.
        """
        one, other = self._rank(), self._rank()
        self._step(one, batch())
        with tempfile.TemporaryDirectory() as folder:
            one.save(Path(folder))
            self._step(one, batch())
            _finish_save(one)
            other.load(Path(folder))
            self._step(other, batch())
        for (name, mine), (_, theirs) in zip(one.weights(), other.weights(), strict=True):
            same = bool((mine == theirs).all()) if self.exact else equal(mine, theirs)
            require(same, f"after save(), load() and one step, {name} differs from an uninterrupted rank")

    @check("TRN-005", needs=("TRN-003",))
    def test_non_finite_values_stop_before_the_weights_change(self) -> None:
        """NaN weights end a run. Before the optimizer step, raise `NonFiniteError` or `ContractError` on NaN."""
        rank = self._rank()
        before = _copy_weights(rank)
        poisoned = replace(batch(), rewards_S=array("d", [math.nan, 1.0, 0.0, 0.0]))
        try:
            self._answer(rank, poisoned)
        except (NonFiniteError, ContractError):
            pass
        else:
            raise AssertionError("train_step() accepted a reward of NaN; expected a NonFiniteError")
        after = _copy_weights(rank)
        require(all(finite(each) for each in after), "weights are not finite after a reward of NaN")
        same = all(equal(one, other) for one, other in zip(before, after, strict=True))
        require(same, "weights changed before the error about a reward of NaN")

    @check("TRN-006", needs=("TRN-001",))
    def test_a_rank_can_have_no_samples(self) -> None:
        """A step may have fewer groups than ranks. Handle an empty share as a step with a zero gradient."""
        result = self._step(self._rank(), empty_batch())
        require(result.tokens == 0, f"it reports {result.tokens} trained tokens for an empty share; expected 0")

    @check("TRN-007", needs=("TRN-003",))
    def test_masked_tokens_are_not_trained_on(self) -> None:
        """Train only on tokens with loss mask 1. With all tokens masked and no weight decay, no weight changes."""
        rank = self._rank()
        before = _copy_weights(rank)
        masked = replace(batch(), loss_mask_T=array("b", [0] * len(batch().tokens_T)))
        self._step(rank, replace(masked, step_tokens=1, step_samples=1))
        same = all(equal(one, other) for one, other in zip(before, _copy_weights(rank), strict=True))
        require(same, "a step in which all tokens are masked changed the weights")

    @check("TRN-009", needs=("TRN-001",))
    def test_it_saves_a_hugging_face_model(self) -> None:
        """A checkpoint contains a Hugging Face model in `hf/`: config.json and safetensors files, no pickle."""
        with tempfile.TemporaryDirectory() as folder:
            rank = self._rank()
            rank.save(Path(folder))
            _finish_save(rank)
            names = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())
        listed = ", ".join(names) or "nothing"
        require("hf/config.json" in names, f"save() wrote no hf/config.json, but {listed}")
        tensors = any(name.startswith("hf/") and name.endswith(".safetensors") for name in names)
        require(tensors, f"save() wrote no .safetensors file to hf/, but {listed}")
        pickled = [name for name in names if name.startswith("hf/") and name.endswith(PICKLES)]
        require(not pickled, f"save() wrote pickle files, which can run code when they are read: {', '.join(pickled)}")

    @check("TRN-010", needs=("TRN-003",))
    def test_ranks_of_one_share_report_the_same_totals(self) -> None:
        """Ranks that train on the same share all return its totals. Add them up over these ranks first."""
        shares, batches = self._shares()
        returned = self._run(lambda group: call(group, "attempt", shares.per_rank(batches)))
        groups = shares.per_rank([set(each.group_index_S) for each in batches])
        results = [
            check_step_result(result, plugin=self.registered.plugin, rank=rank, groups=own)
            for rank, (result, own) in enumerate(zip(returned, groups, strict=True))
        ]
        reported = shares.merged(results)
        for result in reported:
            scalars = [each.scalars for each in reported]
            require(result.scalars == scalars[0], f"ranks return different scalars: {scalars}")
        tokens, most = sum(result.tokens for result in reported), batches[0].step_tokens
        require(0 < tokens <= most, f"the shares report {tokens} trained tokens; expected 1 to {most}")

    @check("TRN-011", needs=("TRN-010",))
    def test_every_rank_can_iterate_the_weights(self) -> None:
        """Every rank iterates `weights` to the end, since it may gather weights. Rank 0 yields every slot, whole."""
        shares, batches = self._shares()

        async def use(group: WorkerGroup) -> tuple[object, object, object]:
            before = (await call(group, "numbers"))[0]
            await call(group, "attempt", shares.per_rank(batches))
            return before, (await call(group, "numbers"))[0], (await call(group, "sizes"))[0]

        before, after, sizes = self._run(use)
        found = {name: len(values) for name, values in cast(Numbers, after).items()}
        require(found == sizes, f"rank 0 yields weights of sizes {found}; its slots have sizes {sizes}")
        require(before != after, "a step of several ranks changed no weight")

    @check("TRN-012", needs=("TRN-011",))
    def test_another_layout_can_load_the_checkpoint(self) -> None:
        """A run may continue on other machines. Ranks in another layout must load a checkpoint of several ranks.

        Set the other layout in `other_layout_settings`.
        """
        shares, batches = self._shares()
        if (other := self._other_layout()) is None:
            raise SkipTest("the contract does not set `other_layout_settings`")
        with tempfile.TemporaryDirectory(prefix="slime-kit-") as folder:

            async def save(group: WorkerGroup) -> object:
                await call(group, "attempt", shares.per_rank(batches))
                await call(group, "save", [(Path(folder), True)] * group.size)
                await call(group, "finish_save", [True] * group.size)
                return (await call(group, "numbers"))[0]

            async def load(group: WorkerGroup) -> object:
                await call(group, "load", [Path(folder)] * group.size)
                return (await call(group, "numbers"))[0]

            saved, loaded = cast(Numbers, self._run(save)), cast(Numbers, self._run(load, other))
        require(saved.keys() == loaded.keys(), f"it saved {sorted(saved)}, but loaded {sorted(loaded)}")
        for name, values in saved.items():
            pairs = zip(values, loaded[name], strict=True)
            near = all(math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-7) for one, other in pairs)
            require(near, f"{name} differs between the saved and the loaded model")

    @check("TRN-013", needs=("TRN-011",))
    def test_non_finite_values_on_one_rank_stop_every_rank(self) -> None:
        """If one rank raises alone, the others hang or diverge. Raise on all ranks: see `fail_on_all_ranks`."""
        shares, (first, *others) = self._shares()
        nan = array("f", [math.nan] * len(first.tokens_T))
        poisoned = [replace(first, rollout_log_probs_T=nan), *others]

        async def use(group: WorkerGroup) -> tuple[list[object], object, object]:
            before = (await call(group, "numbers"))[0]
            outcomes = await call(group, "attempt", shares.per_rank(poisoned))
            return outcomes, before, (await call(group, "numbers"))[0]

        outcomes, before, after = self._run(use)
        for rank, outcome in enumerate(outcomes):
            require(isinstance(outcome, str), f"rank {rank} raised no error, although share 0 has log-probs of NaN")
        require(before == after, "weights changed, although share 0 has log-probs of NaN")

    def _with(self, settings: Mapping[str, object]) -> Settings:
        return self.spec.model.model_validate({**self.settings, **settings})

    def _other_layout(self) -> Settings | None:
        key = self.spec.workers_key
        if self.other_layout_settings is None and self.automatic and key:
            return self._with({key: 1})
        return None if self.other_layout_settings is None else self._with(self.other_layout_settings)

    def _shares(self) -> tuple[Shares, list[TrainBatch]]:
        found = Shares(self.spec.share_of_ranks(self._with(self.multi_rank_settings)), self.registered.plugin)
        if len(found.share_of_rank) < 2:
            raise SkipTest("these settings use one rank; set settings of several ranks in `multi_rank_settings`")
        return found, [self._with_fields(each) for each in shares_of(found.count)]

    def _run(self, use: Callable[[WorkerGroup], Awaitable[ResultT]], settings: Settings | None = None) -> ResultT:
        if self.registered.qualified == NOWHERE:
            raise SkipTest("rank processes must find the trainer: set `choice` to a name, or use a module variable")
        settings = self._with(self.multi_rank_settings) if settings is None else settings
        setup = replace(self.rank_setup(), settings=settings)
        return ranks(self.registered, setup, self.spec.world_size(settings), use)

    def _rank(self) -> TrainerRank:
        need_torch(and_train=True)
        try:
            return self.spec.factory(0, 1, self.rank_setup())
        except (ConfigError, ModelError) as error:
            if not self.automatic:
                raise
            raise SkipTest(f"needs the author's `rank_setup`: it does not support the kit's model: {error}") from None

    def _step(self, rank: TrainerRank, share: TrainBatch) -> StepResult:
        result, groups = self._answer(rank, share), set(share.group_index_S)
        return check_step_result(result, plugin=self.registered.plugin, rank=0, groups=groups)

    def _answer(self, rank: TrainerRank, share: TrainBatch) -> object:
        filled = self._with_fields(share)
        if isinstance(rank, PreparesRollout):
            rank.begin_rollout([filled])
        return rank.train_step(filled)

    def _with_fields(self, share: TrainBatch) -> TrainBatch:
        none = (None,) * len(share.rewards_S)
        return replace(share, fields_S=dict.fromkeys(self.spec.reads(self.make_settings()), none))


def batch() -> TrainBatch:
    """Two groups of two samples, with one prompt per group and token ids below 16."""
    return TrainBatch(
        prompts_P=((3, 4, 5), (6, 7)),
        prompt_index_S=array("i", [0, 0, 1, 1]),
        group_index_S=array("i", [0, 0, 1, 1]),
        rollout_index_S=array("i", [0, 1, 2, 3]),
        response_lengths_S=array("i", [2, 3, 1, 2]),
        rewards_S=array("d", [1.0, 0.0, 0.0, 1.0]),
        weights_S=array("d", [1.0] * 4),
        tokens_T=array("i", [8, 9, 10, 11, 12, 13, 14, 15]),
        loss_mask_T=array("b", [1, 1, 1, 0, 1, 1, 1, 1]),
        rollout_log_probs_T=array("f", [-2.0] * 8),
        step_tokens=7,
        step_samples=4,
    )


def shares_of(count: int) -> list[TrainBatch]:
    """Shares of a step: `batch()` several times, with different tokens."""
    one = batch()
    return [
        replace(
            one,
            group_index_S=array("i", [2 * share + group for group in one.group_index_S]),
            rollout_index_S=array("i", [4 * share + rollout for rollout in one.rollout_index_S]),
            tokens_T=array("i", [8 + (token + share) % 8 for token in one.tokens_T]),
            step_tokens=count * one.step_tokens,
            step_samples=count * one.step_samples,
        )
        for share in range(count)
    ]


def empty_batch() -> TrainBatch:
    """A share without samples."""
    nothing, none = array("i"), array("d")
    return TrainBatch((), nothing, nothing, nothing, nothing, none, none, nothing, array("b"), array("f"), 7, 4)


def _finish_save(rank: TrainerRank) -> None:
    if isinstance(rank, SavesAsync):
        require(rank.finish_save(wait=True), "finish_save(wait=True) returned before the files were written")


def _copy_weights(rank: TrainerRank) -> "list[torch.Tensor]":
    return list(_clones(rank))


def _clones(rank: TrainerRank) -> "Iterator[torch.Tensor]":
    for _, tensor in rank.weights():
        yield tensor.detach().clone()
