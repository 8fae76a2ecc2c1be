"""A plugin that fills every role and implements every hook; each leaves a note of what it was given and did.

conftest.py installs it for runs of their own; the tests read the notes.
"""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from slime_core import Score, hookimpl, roles
from slime_core.hookspecs import HOOK_OF_EVENT, HOOK_OF_RANK_EVENT
from slime_core.sample import Group, GroupId, Json, Sample, Status
from slime_core.score import Verdict
from slime_local.settings import LocalEngineSettings, LocalTrainerSettings

if TYPE_CHECKING:
    import torch

SLIME_API = "1"
NOTES = Path("notes.jsonl")
FAIL = Path("fail")
"""While this file exists, the reward fails."""


def note(kind: str, **about: object) -> None:
    """Append a line; short enough to be whole, whichever process writes it."""
    with NOTES.open("a") as file:
        file.write(json.dumps({"kind": kind, "pid": os.getpid(), **about}) + "\n")


class Sums:
    """Data source: the n-th group asks for n+1."""

    def __init__(self, settings: roles.Settings, setup: roles.DataSourceSetup) -> None:
        self._size, self._drawn, self._back = setup.n_samples_per_prompt, 0, list[Group]()

    async def draw(self, count: int) -> list[Group]:
        taken, self._back = self._back[:count], self._back[count:]
        note("data_source", count=count, first=self._drawn)
        return taken + [self._next() for _ in range(count - len(taken))]

    def _next(self) -> Group:
        number = self._drawn
        self._drawn += 1
        samples = [
            Sample(
                group_index=number,
                index=index,
                rollout_id=number * self._size + index,
                prompt=f"What is {number}+1?",
                label=str(number + 1),
                source="sums",
            )
            for index in range(self._size)
        ]
        return Group(GroupId("sums", 0, number, number), samples)

    def add(self, groups: Sequence[Group]) -> None:
        self._back.extend(groups)

    def state_dict(self) -> dict[str, Json]:
        return {"drawn": self._drawn}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        self._drawn = cast(int, state["drawn"])

    def __len__(self) -> int:
        return 1000


async def twice(sample: Sample, ctx: roles.GenerateContext) -> list[Sample]:
    """Generator: every rollout fans out into two samples."""
    prompt = ctx.tokenizer.encode(str(sample.prompt))
    made = []
    for turn in range(2):
        output = await ctx.generate(prompt, ctx.sampling)
        one = replace(sample, tokens=prompt, weight_versions=[], metadata={"turn": turn}, status=Status.COMPLETED)
        one.append_response_tokens(
            tokens=output.tokens,
            log_probs=output.log_probs,
            text=ctx.tokenizer.decode(output.tokens),
            weight_version=str(output.weight_version),
        )
        one.rollout_routed_experts = one.tokens[1:]  # one for each token but the last, and telling whose it is
        made.append(one)
    return made


async def digits(sample: Sample, ctx: roles.RewardContext) -> Verdict:
    """Reward: the share of digits."""
    if FAIL.exists():  # noqa: ASYNC240  # a test: nothing waits
        raise OSError("the judge is gone")
    return Score(sum(letter.isdigit() for letter in sample.response) / 8, {"letters": float(len(sample.response))})


async def ranked(samples: Sequence[Sample], ctx: roles.RewardContext) -> Sequence[Verdict]:
    """Group reward: how many of the group's samples are earlier."""
    note("group_reward", turns=[sample.metadata["turn"] for sample in samples], evaluation=ctx.evaluation)
    return [Score(float(place)) for place in range(len(samples))]


def not_third(group: Group, ctx: roles.FilterContext) -> roles.Decision:
    """Group filter: drops every third group."""
    return roles.Drop("third") if group.id.draw % 3 == 2 else roles.Keep()


def without(position: int, reason: str) -> roles.SampleFilter:
    """Sample filter: takes one position out of every group."""

    def filtered(groups: Sequence[Group], ctx: roles.FilterContext) -> Sequence[roles.Removal]:
        note("sample_filter", of=position, removed=[_removed(group) for group in groups])
        return [roles.Removal(group.id, position, reason) for group in groups]

    return filtered


def _removed(group: Group) -> list[int]:
    return [position for position, sample in enumerate(group.samples) if sample.remove_sample]


class Stack:
    """Buffer: what its filter takes, with half the weight."""

    def __init__(self, settings: roles.Settings, setup: roles.BufferSetup) -> None:
        self._filter, self._groups = setup.buffer_filter, list[Group]()

    def add(self, groups: Sequence[Group]) -> None:
        self._groups += groups

    def sample(self, want: int, ctx: roles.BufferContext) -> roles.Draw:
        chosen = self._filter.select(self._groups, want, ctx)
        taken = [self._groups[position] for position in chosen.take]
        self._groups = [group for group in self._groups if group not in taken]
        note("buffer", draws=[group.id.draw for group in taken], removed=[_removed(group) for group in taken])
        return roles.Draw(taken, [0.5] * len(taken))

    def update(self, scores: Mapping[GroupId, float]) -> None:
        note("buffer_update", scores={str(group_id): score for group_id, score in scores.items()})

    def evict(self, ctx: roles.BufferContext) -> Mapping[GroupId, str]:
        gone, self._groups = self._groups, []
        return {group.id: "crowded" for group in gone}

    def state_dict(self) -> dict[str, Json]:
        return {"groups": [group.to_dict() for group in self._groups]}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        self._groups = [Group.from_dict(each) for each in cast(list[Mapping[str, Json]], state["groups"])]

    def __len__(self) -> int:
        return len(self._groups)


class Newest:
    """Buffer filter: the newest groups first."""

    def select(self, groups: Sequence[Group], want: int, ctx: roles.BufferContext) -> roles.Selection:
        newest = sorted(range(len(groups)), key=lambda place: groups[place].id.draw, reverse=True)
        note("buffer_filter", held=len(groups), want=want, rollout_id=ctx.rollout_id)
        return roles.Selection(take=newest[:want])


def double(groups: Sequence[Group], ctx: roles.ShapeContext) -> Sequence[Sequence[float | None]]:
    """Reward shaper: twice as much."""
    note("double", rewards=ctx.rewards)
    return [[None if each is None else 2 * each for each in row] for row in ctx.rewards]


def plus_one(groups: Sequence[Group], ctx: roles.ShapeContext) -> Sequence[Sequence[float | None]]:
    """Reward shaper: one more."""
    note("plus_one", rewards=ctx.rewards)
    return [[None if each is None else each + 1 for each in row] for row in ctx.rewards]


def places(sample: Sample, group: Group, ctx: roles.ShapeContext) -> Mapping[str, float | Sequence[float]]:
    """Batch transform: the turn of a sample, and the place of a token in its response."""
    return {"turn": cast(int, sample.metadata["turn"]), "place": list(range(sample.response_length))}


def not_first(sample: Sample, group: Group, ctx: roles.ShapeContext) -> Mapping[str, float | Sequence[float]]:
    """Batch transform: takes the first token of every response out of the loss."""
    return {roles.LOSS_MASK: [0.0, *[1.0] * (sample.response_length - 1)] if sample.response_length else []}


def plain(batch: roles.AdvantageInput) -> "torch.Tensor":
    """Advantage: the reward itself, as it came."""
    note(
        "advantage",
        rewards=batch.rewards_S.tolist(),
        turns=batch.columns_S["turn"].tolist(),
        places=batch.columns_T["place"].tolist(),
        mask=batch.loss_mask_T.tolist(),
        samples=batch.sample_index_T.tolist(),
    )
    return batch.rewards_S[batch.sample_index_T]


def reinforce(batch: roles.LossInput) -> roles.LossOutput:
    """Loss: without a ratio."""
    note(
        "loss",
        difference=float((batch.log_probs_T - batch.old_log_probs_T).abs().max()),
        turns=batch.columns_S["turn"].tolist(),
        places=batch.columns_T["place"].tolist(),
        samples=batch.sample_index_T.tolist(),
        mask=batch.loss_mask_T.tolist(),
    )
    loss_T = -batch.advantages_T * batch.log_probs_T
    return roles.LossOutput(loss_T, {"own_loss": loss_T})


def half(batch: roles.CorrectionInput) -> roles.CorrectionOutput:
    """Correction: half of every loss."""
    note("correction", grad=batch.log_probs_T.requires_grad, tokens=len(batch.log_probs_T))
    half_T = 0.5 * batch.loss_mask_T
    return roles.CorrectionOutput(half_T, batch.loss_mask_T, {"halved": 2 * half_T})


class Rows:
    """Tracker: notes its rows."""

    async def log(self, step: int, metrics: Mapping[str, float]) -> None:
        note("tracker", step=step, names=sorted(metrics))

    async def close(self) -> None:
        note("tracker_closed")


def _engine(settings: LocalEngineSettings, setup: roles.EngineSetup) -> roles.Engine:
    from slime_local.engine import LocalEngine

    class Noting(LocalEngine):
        async def start(self) -> None:
            place = {"number": setup.number, "count": setup.count, "serves": setup.serves}
            note("engine", model=str(setup.hf_checkpoint), concurrency=setup.max_concurrency, **place)
            await super().start()

    return Noting(settings, setup)


def _rank(rank: int, world_size: int, setup: roles.RankSetup) -> roles.TrainerRank:
    from slime_local.rank import LocalRank

    class Noting(LocalRank):
        def train_step(self, batch: roles.TrainBatch) -> roles.StepResult:
            experts_S = batch.fields_S[roles.SampleField.ROLLOUT_ROUTED_EXPERTS]
            ends = itertools.accumulate(batch.response_lengths_S)
            samples = zip(experts_S, batch.prompt_index_S, batch.response_lengths_S, ends, strict=True)
            own_experts = sum(
                list(cast(Sequence[int], experts))
                == [*batch.prompts_P[prompt], *batch.tokens_T[end - length : end]][1:]
                for experts, prompt, length, end in samples
            )
            about = {"step_tokens": batch.step_tokens, "own_experts": own_experts}
            note("trainer", rollout_id=batch.rollout_id, weights=list(batch.weights_S), **about)
            return super().train_step(batch)

    return Noting(rank, world_size, setup)


def _launcher(settings: roles.Settings, setup: roles.LauncherSetup) -> roles.Launcher:
    from slime_core.processes.launcher import LocalLauncher

    class Noting(LocalLauncher):
        async def start(self, spec: roles.WorkerGroupSpec, *, timeout_s: float | None = None) -> roles.WorkerGroup:  # type: ignore[override]
            note("launcher", group=spec.name, size=spec.size)
            return await super().start(spec, timeout_s=timeout_s)

    return Noting(setup)


def _offer(role: str, *specs: object) -> None:
    globals()[f"slime_{role}"] = hookimpl(lambda: specs, specname=f"slime_{role}")


_offer("data_sources", roles.DataSourceSpec("sums", Sums, reads_prompt_data=False))
_offer(
    "generators",
    roles.GeneratorSpec(
        "twice", lambda settings, setup: twice, max_concurrency=3, gives=frozenset({roles.Extra.ROUTED_EXPERTS})
    ),
)
_offer(
    "rewards",
    roles.RewardSpec("digits", lambda settings, setup: digits),
    roles.RewardSpec("wrapped", lambda settings, setup: cast(roles.Reward, setup.make("reward", "digits"))),
)
_offer("group_rewards", roles.GroupRewardSpec("ranked", lambda settings, setup: ranked, each_sample=True))
_offer("group_filters", roles.GroupFilterSpec("not_third", lambda settings, setup: not_third))
_offer(
    "sample_filters",
    roles.SampleFilterSpec("without_first", lambda settings, setup: without(0, "first")),
    roles.SampleFilterSpec("without_second", lambda settings, setup: without(1, "second")),
)
_offer("buffers", roles.BufferSpec("stack", Stack, uses_buffer_filter=True))
_offer("buffer_filters", roles.BufferFilterSpec("newest", lambda settings, setup: Newest()))
_offer(
    "reward_shapers",
    roles.RewardShaperSpec("double", lambda settings, setup: double),
    roles.RewardShaperSpec("plus_one", lambda settings, setup: plus_one),
)
_offer(
    "batch_transforms",
    roles.BatchTransformSpec(
        "places", lambda settings, setup: places, columns={"turn": roles.Grain.SAMPLE, "place": roles.Grain.TOKEN}
    ),
    roles.BatchTransformSpec(
        "not_first", lambda settings, setup: not_first, columns={roles.LOSS_MASK: roles.Grain.TOKEN}
    ),
)
_offer("advantages", roles.AdvantageSpec("plain", lambda settings, setup: plain))
_offer("losses", roles.LossSpec("reinforce", lambda settings, setup: reinforce))
_offer("corrections", roles.CorrectionSpec("half", lambda settings, setup: half))
_offer("engines", roles.EngineSpec("noting", _engine, LocalEngineSettings, transports=("shared-buffer",)))
_offer(
    "trainers",
    roles.TrainerSpec(
        "noting",
        _rank,
        LocalTrainerSettings,
        reads=lambda settings: frozenset({roles.SampleField.ROLLOUT_ROUTED_EXPERTS}),
        transports=("shared-buffer",),
    ),
)
_offer("launchers", roles.LauncherSpec("noting", _launcher))
_offer(
    "trackers",
    roles.TrackerSpec("rows", lambda settings, setup: Rows()),
)

PLAIN = (
    "rollout_id",
    "version",
    "step",
    "num_rollout",
    "evaluation",
    "weight_version",
    "rank",
    "weights",
    "world_size",
)
SIZED = ("samples", "kept", "dropped", "metrics")


def _watch(hook: str) -> object:
    def watch(event: object) -> None:
        about = {name: getattr(event, name) for name in PLAIN if hasattr(event, name)}
        about |= {f"{name}_count": len(getattr(event, name)) for name in SIZED if hasattr(event, name)}
        about |= {name: type(getattr(event, name)).__name__ for name in ("model", "optimizer") if hasattr(event, name)}
        if hasattr(event, "error"):
            about["error"] = str(event.error)
        if hasattr(event, "path"):
            about["path"] = event.path.name
        note(hook, **about)

    return hookimpl(watch, specname=hook)


for _hook in (*HOOK_OF_EVENT.values(), *HOOK_OF_RANK_EVENT.values()):
    globals()[f"watch_{_hook}"] = _watch(_hook)
