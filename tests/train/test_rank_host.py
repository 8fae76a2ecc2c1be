"""RankHost: the driver's calls, answered by the rank that the trainer's plugin builds in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from slime_core.errors import PluginError
from slime_core.local.settings import LocalTrainerSettings
from slime_core.roles import Choice, Draw, PluginSet, TrainBatch, Transport, WeightChannel
from slime_core.sample import Group, GroupId, Sample
from slime_core.train.prepare import Preparation
from slime_core.train.rank_host import RankHost
from slime_core.train.shared_buffer import open_half
from slime_core.train.split import split_step
from tests.ranks import rank_setup

ALONE = PluginSet(only=())
"""The core's own plugin, whatever is installed beside it."""
Hosts = Callable[..., RankHost]
LOCAL = Choice("trainer", "local", "slime-core", LocalTrainerSettings(ranks=1))


@pytest.fixture
def host(tiny_model: Path, tmp_path: Path) -> Hosts:
    """A rank's host, in this process."""

    def start(rank: int = 0, plugins: PluginSet = ALONE, trainer: Choice = LOCAL) -> RankHost:
        setup = rank_setup(tiny_model, tmp_path, plugins=plugins, settings={"ranks": 1})
        return RankHost(rank, 1, trainer=trainer, setup=setup)

    return start


def batch() -> TrainBatch:
    samples = []
    for index in range(2):
        sample = Sample(group_index=0, index=index, tokens=[5, 6, 7], reward=float(index))
        sample.append_response_tokens(tokens=[8 + index, 9], log_probs=[-5.0, -5.0], weight_version="0")
        samples.append(sample)
    group = Group(GroupId("made", 0, 0, 0), samples)
    return split_step(Preparation().of(Draw([group], [1.0]), rollout_id=0), 1, rollout_id=0)[0]


def published(answers: RankHost, directory: Path, version: int) -> torch.Tensor:
    """The half of the version, in a new file of zeros that the host was asked to publish to."""
    channel = WeightChannel(Transport.SHARED_BUFFER, directory / f"weights-{version}.bin", answers.weight_slots())
    channel.path.write_bytes(bytes(2 * 4 * channel.numel))
    answers.publish((channel, version))
    assert not open_half(channel, version + 1).any()
    return open_half(channel, version).clone()


def test_a_step_changes_what_is_published_and_a_saved_rank_continues_from_it(host: Hosts, tmp_path: Path) -> None:
    first = host()
    before = published(first, tmp_path, 0)
    result = first.train_step(batch())
    assert result.tokens == 4
    after = published(first, tmp_path, 1)
    assert before.any()
    assert not torch.equal(before, after)
    first.save(tmp_path / "saved")
    second = host()
    assert torch.equal(published(second, tmp_path, 2), before)
    second.load(tmp_path / "saved")
    assert torch.equal(published(second, tmp_path, 3), after)


def test_what_is_measured_is_the_loss_before_the_step_and_changes_nothing(host: Hosts, tmp_path: Path) -> None:
    answers = host()
    before = published(answers, tmp_path, 0)
    measured = answers.measure(batch())
    assert torch.equal(published(answers, tmp_path, 1), before)
    trained = answers.train_step(batch())
    assert (measured.tokens, measured.scalars) == (4, {})
    assert measured.metrics["pg_loss"] == pytest.approx(trained.metrics["pg_loss"], rel=1e-5)
    assert answers.measure(batch()).metrics["pg_loss"] != measured.metrics["pg_loss"]


STEPS_ALONE = '''
from slime_core import hookimpl
from slime_core.local.rank import LocalRank
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


def test_a_trainer_that_only_steps_is_named_when_a_loss_is_to_be_measured(host: Hosts, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(STEPS_ALONE)
    plugins = PluginSet(only=(), modules=(f"{tmp_path}/mine.py",))
    answers = host(plugins=plugins, trainer=Choice("trainer", "steps_alone", "mine", LOCAL.settings))
    with pytest.raises(PluginError, match=r"^trainer StepsAlone cannot evaluate a loss .* leave out eval_prompt_data"):
        answers.measure(batch())
    assert answers.train_step(batch()).tokens == 4


def test_only_rank_0_writes_what_is_published(host: Hosts, tmp_path: Path) -> None:
    assert not published(host(rank=1), tmp_path, 0).any()


def test_a_plugin_that_the_rank_lacks_is_missed_by_its_name(host: Hosts) -> None:
    with pytest.raises(PluginError, match=r"^trainer 7 on .*slime-nowhere"):
        host(rank=7, plugins=PluginSet(only=(), require=("slime-nowhere",)))
