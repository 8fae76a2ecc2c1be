"""A rank: what it loads, trains, reduces, publishes and says when it fails."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.rendezvous import rendezvous

from slime_core.batching.prepare import Preparation
from slime_core.batching.split import split_step
from slime_core.errors import ContractError, NonFiniteError, PluginError
from slime_core.roles import (
    Choice,
    Draw,
    Place,
    PluginSet,
    StepResult,
    TrainBatch,
    WeightChannel,
    WeightSlot,
    file_rendezvous,
)
from slime_core.sample import Group, GroupId, Sample
from slime_local.settings import LocalTrainerSettings
from slime_testing.tensors.algorithm import Ranks
from slime_train import ServedWeights, fail_on_all_ranks
from slime_train.rank_host import RankHost, checked_buckets
from slime_train.share import token_weights
from tests.channels import flat, opened
from tests.ranks import rank_setup
from tests.tables import table

ALONE = PluginSet(only=("slime-local",))
"""The core's own plugin, whatever is installed beside it."""
Hosts = Callable[..., RankHost]
LOCAL = Choice("trainer", "local", "slime-local", LocalTrainerSettings(ranks=1))


@pytest.fixture
def host(tiny_model: Path, tmp_path: Path) -> Hosts:
    """A rank's host, in this process."""

    def start(
        rank: int = 0, plugins: PluginSet = ALONE, trainer: Choice = LOCAL, place: Place | None = None
    ) -> RankHost:
        setup = rank_setup(tiny_model, tmp_path, plugins=plugins, settings={"ranks": 1})
        return RankHost(rank, 1, trainer=trainer, setup=setup, place=place)

    return start


def batch() -> TrainBatch:
    samples = []
    for index in range(2):
        sample = Sample(group_index=0, index=index, tokens=[5, 6, 7], reward=float(index))
        sample.append_response_tokens(tokens=[8 + index, 9], log_probs=[-5.0, -5.0], weight_version="0")
        samples.append(sample)
    group = Group(GroupId("made", 0, 0, 0), samples)
    return split_step(Preparation().prepare(Draw([group], [1.0]), rollout_id=0), 1, rollout_id=0)[0]


def stepped(answers: RankHost) -> StepResult:
    """A rollout of one step."""
    answers.begin_rollout([batch()])
    return answers.train_step(0)


def published(answers: RankHost, directory: Path, version: int) -> torch.Tensor:
    """What the host was asked to publish."""
    channel = opened(directory, answers.weight_slots())
    answers.connect(channel)
    answers.publish((version, ()))
    return flat(channel, version)


def test_a_step_changes_what_is_published_and_a_saved_rank_continues_from_it(host: Hosts, tmp_path: Path) -> None:
    first = host()
    before = published(first, tmp_path, 0)
    result = stepped(first)
    assert result.tokens == 4
    after = published(first, tmp_path, 1)
    assert before.any()
    assert not torch.equal(before, after)
    first.save((tmp_path / "saved", True))
    assert first.finish_save(True)
    second = host()
    assert torch.equal(published(second, tmp_path, 2), before)
    second.load(tmp_path / "saved")
    assert torch.equal(published(second, tmp_path, 3), after)


def test_what_is_measured_is_the_loss_before_the_step_and_changes_nothing(host: Hosts, tmp_path: Path) -> None:
    answers = host()
    before = published(answers, tmp_path, 0)
    measured = answers.measure(batch())
    assert torch.equal(published(answers, tmp_path, 1), before)
    trained = stepped(answers)
    assert (measured.tokens, measured.scalars) == (4, {})
    assert measured.metrics["pg_loss"] == pytest.approx(trained.metrics["pg_loss"], rel=1e-5)
    assert answers.measure(batch()).metrics["pg_loss"] != measured.metrics["pg_loss"]


STEPS_ALONE = '''
from slime_core import hookimpl
from slime_local.rank import LocalRank
from slime_core.roles import TrainerSpec

SLIME_API = "1"


class StepsAlone:
    """The local rank without its `measure`."""

    def __init__(self, rank, world_size, setup):
        made = LocalRank(rank, world_size, setup)
        self.weight_slots, self.train_step, self.weights = made.weight_slots, made.train_step, made.weights
        self.save, self.load = made.save, made.load


@hookimpl
def slime_trainers():
    return [TrainerSpec("steps_alone", StepsAlone)]
'''


def own_trainer(host: Hosts, folder: Path, name: str, source: str, **more: object) -> RankHost:
    """A host of a rank of this trainer, from a module of the project."""
    (folder / "mine.py").write_text(source)
    plugins = PluginSet(only=("slime-local",), modules=(f"{folder}/mine.py",))
    return host(plugins=plugins, trainer=Choice("trainer", name, "mine", LOCAL.settings), **more)


def stepping(statement: str) -> str:
    """`StepsAlone`, with a statement in its constructor."""
    return STEPS_ALONE.replace("self.save, self.load", f"{statement}; self.save, self.load")


def test_a_trainer_that_only_steps_is_named_when_a_loss_is_to_be_measured(host: Hosts, tmp_path: Path) -> None:
    answers = own_trainer(host, tmp_path, "steps_alone", STEPS_ALONE)
    with pytest.raises(PluginError, match=r"^trainer StepsAlone cannot evaluate a loss .* leave out eval_prompt_data"):
        answers.measure(batch())
    assert stepped(answers).tokens == 4


def test_a_rank_that_has_something_to_close_is_closed(host: Hosts, tmp_path: Path) -> None:
    source = stepping("self.close = lambda: open(f'{__file__}.closed', 'x').close()")
    own_trainer(host, tmp_path, "steps_alone", source).close()
    assert (tmp_path / "mine.py.closed").exists()


@pytest.mark.parametrize(
    ("place", "url"),
    [
        (Place(0, rendezvous="127.0.0.1:4000"), "file://"),
        (Place(0, address="10.0.0.7", rendezvous="10.0.0.7:4000"), "tcp://10.0.0.7:4000"),
        (Place(3, nodes=2, rendezvous="127.0.0.1:4000"), "tcp://127.0.0.1:4000"),
    ],
    ids=["this machine", "another one", "two nodes"],
)
def test_ranks_meet_at_a_file_where_all_are_on_the_drivers_machine(
    host: Hosts, tmp_path: Path, place: Place, url: str
) -> None:
    source = stepping("__import__('pathlib').Path(f'{__file__}.url').write_text(setup.rendezvous)")
    own_trainer(host, tmp_path, "steps_alone", source, place=place)
    assert (tmp_path / "mine.py.url").read_text().startswith(url)


def test_a_checkpoint_may_leave_the_model_out(host: Hosts, tmp_path: Path) -> None:
    first, second = host(), host()
    stepped(first)
    first.save((tmp_path / "saved", False))
    assert [path.name for path in (tmp_path / "saved").iterdir()] == ["optim"]
    second.load(tmp_path / "saved")
    assert torch.equal(published(second, tmp_path, 0), published(first, tmp_path, 1))


GATHERING = '''
from pathlib import Path

import torch

from slime_core import hookimpl
from slime_core.roles import TrainerSpec, WeightSlot

SLIME_API = "1"


class Gathering:
    """A rank whose buckets take all ranks: it notes that they came to the end."""

    def __init__(self, rank, world_size, setup):
        pass

    def weight_slots(self):
        return [WeightSlot("a", (2,)), WeightSlot("b", (3, 1))]

    def weights(self):
        yield "a", torch.ones(2)
        yield "b", torch.zeros(3, 1)
        Path(f"{__file__}.ended").touch()


@hookimpl
def slime_trainers():
    return [TrainerSpec("gathering", Gathering)]
'''


@dataclass(frozen=True, slots=True)
class Noting(WeightChannel):
    """Its sender takes `takes` buckets."""

    takes: int
    sent: list[str]

    def sender(self, rank: int, world_size: int) -> "Noting":  # type: ignore[override]
        return self

    def send(self, version: int, buckets: Iterator[tuple[str, torch.Tensor]], engines: Sequence[int]) -> None:
        for _ in range(self.takes):
            self.sent.append(next(buckets)[0])
        if not self.takes:
            raise OSError("no route")

    def close(self) -> None:
        self.sent.append("closed")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("takes", [0, 1, 2])
def test_a_rank_comes_to_the_end_of_its_buckets_whatever_its_sender_takes(
    host: Hosts, tmp_path: Path, rank: int, takes: int
) -> None:
    answers = own_trainer(host, tmp_path, "gathering", GATHERING, rank=rank)
    channel = Noting("noting", tuple(answers.weight_slots()), takes, [])
    answers.connect(channel)
    with nullcontext() if takes else pytest.raises(OSError, match="no route"):
        answers.publish((0, ()))
    assert (tmp_path / "mine.py.ended").exists()
    answers.close()
    assert channel.sent == [*["a", "b"][:takes], "closed"]


SLOTS = [WeightSlot("a", (2,)), WeightSlot("b", (3, 1))]
WHOLE = [("a", torch.ones(2)), ("b", torch.zeros(3, 1))]


@table(
    "buckets, says",
    [
        (WHOLE[:1], r"plugin mine, weights\(\): no bucket for b \(3, 1\) float32, and 0 more$"),
        ([WHOLE[0], WHOLE[0]], r"bucket 'a' comes twice$"),
        ([WHOLE[0], ("c", torch.ones(1))], r"bucket 'c' is not among its weight_slots\(\)$"),
        ([WHOLE[0], ("b", torch.ones(1, 3))], r"bucket b is \(1, 3\) float32; its slot says b \(3, 1\) float32$"),
        ([("a", torch.ones(2).half())], r"bucket a is \(2,\) float16; its slot says a \(2,\) float32$"),
    ],
)
def test_buckets_that_are_not_the_slots_are_refused(buckets: list[tuple[str, torch.Tensor]], says: str) -> None:
    with pytest.raises(ContractError, match=says):
        list(checked_buckets(SLOTS, iter(buckets), plugin="mine", whole=True))


def test_another_rank_may_have_less_of_the_weights() -> None:
    [(name, _)] = checked_buckets(SLOTS, iter(WHOLE[1:]), plugin="mine", whole=False)
    assert name == "b"


def test_a_plugin_that_the_rank_lacks_is_missed_by_its_name(host: Hosts) -> None:
    with pytest.raises(PluginError, match=r"^trainer 7 on .*slime-nowhere"):
        host(rank=7, plugins=PluginSet(only=("slime-local",), require=("slime-nowhere",)))


# Rendezvous: ranks meet in a file, with any name that a folder can have.


@table(
    "name", ["with a space", "50%20", "what?", "run#3", "new\nline", "[1];a:b@c&d=e", os.fsdecode(b"not utf-8 \xff")]
)
def test_ranks_meet_in_the_file_that_is_meant(tmp_path: Path, name: str) -> None:
    place = tmp_path / name / "rendezvous"
    place.parent.mkdir()
    store, *_ = next(rendezvous(file_rendezvous(place), rank=0, world_size=1))
    store.set("met", "here")
    assert b"here" in place.read_bytes()


# ServedWeights: what generated a rollout, in the order in which weights are published and trained.


def trained(lag: int, interval: int, rollouts: int, *, resumed_at: int | None = None) -> list[int]:
    """Versions that generated each rollout; weights are published every so many, and when the run is resumed."""
    served, generated = ServedWeights[str](lag), list[int]()
    served.published(0, lambda: "weights 0")
    for rollout_id in range(rollouts):
        if rollout_id == resumed_at:
            saved, served = served.saved(), ServedWeights[str](lag)
            if saved is not None:
                served.restore(*saved)
            served.published(rollout_id, lambda: f"weights {rollout_id}")  # noqa: B023  # called at once
        version, weights = served.of(rollout_id)
        assert weights == f"weights {version}"
        generated.append(version)
        done = rollout_id + 1
        if done % interval == 0:
            served.published(done, lambda: f"weights {done}")  # noqa: B023  # called at once
    return generated


@table(
    "lag, interval, generated",
    [
        (0, 1, [0, 1, 2, 3, 4, 5]),
        (0, 2, [0, 0, 2, 2, 4, 4]),
        (0, 3, [0, 0, 0, 3, 3, 3]),
        (1, 1, [0, 0, 1, 2, 3, 4]),
        (1, 2, [0, 0, 0, 2, 2, 4]),
        (1, 4, [0, 0, 0, 0, 0, 4]),
    ],
)
def test_a_rollout_is_of_what_was_served_when_it_began(lag: int, interval: int, generated: list[int]) -> None:
    assert trained(lag, interval, 6) == generated


@table("lag", [0, 1])
@table("at", [2, 4])
def test_a_resumed_run_is_of_the_same(lag: int, at: int) -> None:
    assert trained(lag, 2, 6, resumed_at=at) == trained(lag, 2, 6)


def test_a_version_that_is_sent_again_is_not_copied_again() -> None:
    served, copies = ServedWeights[int](0), iter((7, 8))
    for _ in range(2):
        served.published(3, lambda: next(copies))
    assert served.of(3) == (3, 7)
    assert served.saved() is None, "it is published again by itself"


# Failing together: one rank's error is every rank's, and nobody waits for one that will not come.

Total = Callable[[torch.Tensor], torch.Tensor]


def heard(errors: dict[int, Exception], ranks: int = 3) -> list[str]:
    """What each of some ranks raises, as text, where some of them fail so."""
    found = [""] * ranks

    def work(rank: int) -> Callable[[Total], torch.Tensor]:
        def run(total: Total) -> torch.Tensor:
            try:
                with fail_on_all_ranks(rank, ranks, total):
                    if rank in errors:
                        raise errors[rank]
            except (NonFiniteError, ContractError) as error:
                found[rank] = f"{type(error).__name__}: {error}"
            return torch.zeros(1)

        return run

    Ranks(ranks).run([work(rank) for rank in range(ranks)])
    return found


def test_where_none_fails_all_go_on() -> None:
    assert heard({}) == ["", "", ""]


def test_the_error_of_one_is_raised_by_all() -> None:
    assert heard({1: NonFiniteError("the loss is naïve")}) == ["NonFiniteError: rank 1: the loss is naïve"] * 3


def test_of_several_errors_the_first_rank_s_is_raised() -> None:
    given = {2: NonFiniteError("late"), 1: ContractError("advantage of plugin x: holds NaN")}
    assert heard(given) == ["ContractError: rank 1: advantage of plugin x: holds NaN"] * 3


def test_a_text_of_any_length_arrives_cut() -> None:
    (one, *others) = heard({0: NonFiniteError("é" * 5000)})
    assert one == others[0] == others[1]
    assert 900 < len(one) < 1100


def test_alone_an_error_is_what_it_was() -> None:
    error = NonFiniteError("alone")
    with pytest.raises(NonFiniteError) as raised, fail_on_all_ranks(0, 1, _never):
        raise error
    assert raised.value is error


def _never(tensor: torch.Tensor) -> torch.Tensor:
    raise AssertionError("one rank has nobody to ask")


# Reduction against loops in float64: whole steps, and the same step cut into ranks; rollouts that fanned out.

TOKEN = st.tuples(st.integers(0, 1), st.floats(-2, 2))
SAMPLE = st.tuples(st.lists(TOKEN, max_size=6), st.sampled_from([1.0, 0.5, 2.0]))
Samples = list[tuple[list[tuple[int, float]], float]]
Rollouts = list[Samples]
"""Rollouts of one sample, or of several where one execution fanned out."""
STEP = st.lists(st.lists(SAMPLE, min_size=1, max_size=3), min_size=1, max_size=6)
Mean = str | int
MEANS: list[Mean] = ["tokens", "rollouts", 5]
BY_MEAN = table("mean", MEANS)


def counts(rollouts: Rollouts) -> tuple[int, int]:
    trained = [sum(mask for tokens, _ in samples for mask, _ in tokens) for samples in rollouts]
    return sum(trained), sum(count > 0 for count in trained)


def reference(rollouts: Rollouts, mean: Mean) -> float:
    step_tokens, step_rollouts = counts(rollouts)
    total = 0.0
    for samples in rollouts:
        trained = [importance * loss for tokens, importance in samples for mask, loss in tokens if mask]
        if not trained:
            continue
        match mean:
            case "tokens":
                total += sum(trained) / step_tokens
            case "rollouts":
                total += sum(trained) / len(trained) / step_rollouts
            case length:
                total += sum(trained) / int(length) / step_rollouts
    return total


def reduced(rollouts: Rollouts, denominators: tuple[int, int], mean: Mean) -> float:
    samples = [sample for each in rollouts for sample in each]
    rollout_S = torch.tensor([90 - number for number, each in enumerate(rollouts) for _ in each], dtype=torch.int64)
    flat = [(mask, loss, number) for number, (tokens, _) in enumerate(samples) for mask, loss in tokens]
    mask_T = torch.tensor([mask for mask, _, _ in flat], dtype=torch.float64)
    loss_T = torch.tensor([loss for _, loss, _ in flat], dtype=torch.float64)
    sample_T = torch.tensor([number for _, _, number in flat], dtype=torch.int64)
    importance_S = torch.tensor([importance for _, importance in samples], dtype=torch.float64)
    weight_T = token_weights(
        mask_T,
        sample_T,
        importance_S,
        rollout_S,
        step_tokens=denominators[0],
        step_samples=denominators[1],
        per_token=mean == "tokens",
        constant_length=mean if isinstance(mean, int) else None,
    )
    return float((loss_T * weight_T).sum())


@BY_MEAN
@given(rollouts=STEP)
def test_it_is_the_mean(mean: Mean, rollouts: Rollouts) -> None:
    found = reduced(rollouts, counts(rollouts), mean)
    assert found == pytest.approx(reference(rollouts, mean), rel=1e-9, abs=1e-12)


@BY_MEAN
@given(rollouts=STEP, cut=st.integers(0, 6))
def test_the_parts_of_a_step_add_up_to_it(mean: Mean, rollouts: Rollouts, cut: int) -> None:
    parts = [part for part in (rollouts[:cut], rollouts[cut:]) if part]
    total = sum(reduced(part, counts(rollouts), mean) for part in parts)
    assert total == pytest.approx(reference(rollouts, mean), rel=1e-9, abs=1e-12)
