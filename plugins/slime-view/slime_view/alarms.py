"""Alarms: problems in a run's metrics, each reported once until it has ended.

They depend only on the metrics, so that a saved metrics.jsonl gives the alarms that the run reported.

Example:

    alarms = Alarms(config.alarms, config.rollout)
    for row in MetricsLog.read(run_dir / "metrics.jsonl"):
        print(*alarms.check(row))
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from slime_core.config import AlarmArgs, AlarmName, RolloutArgs, read_run_file
from slime_core.errors import RunFolderError
from slime_core.outputs import nofollow
from slime_core.telemetry import MetricsLog, MetricsRow, names
from slime_core.telemetry.recording import AlarmWatch

WINDOW = 5
"""Rollouts per mean; a single one is too noisy."""
CUT_OFF = 0.2
"""Share of truncated responses above which growing lengths raise the alarm."""
ENTROPY, TRUNCATED = "train/entropy_loss", "rollout/truncated_ratio"
KLS = ("train/kl_loss", "train/ppo_kl")
MISMATCH = "train/train_rollout_logprob_abs_diff"
_SAME, _ERRORS = "rollout/zero_std/count_", "rollout/errors/"
_NO_VARIANCE, _FAILED = "groups of one reward", "failed samples"
WATCHED = (names.REWARD, names.RESPONSE_LENGTH, TRUNCATED, ENTROPY, MISMATCH, *KLS)


@dataclass(frozen=True, slots=True)
class Alarm:
    """One problem of a run."""

    name: AlarmName
    """Its name, as in `stop_on_alarms`."""
    rollout_id: int
    """Number of the metrics row's rollout."""
    text: str
    """The observation, and what to check."""

    def __str__(self) -> str:
        return f"alarm {self.name}, rollout {self.rollout_id}: {self.text}"


@dataclass(slots=True)
class _Past:
    first: list[float] = field(default_factory=list)
    late: deque[float] = field(default_factory=lambda: deque(maxlen=2 * WINDOW))

    def add(self, value: float) -> None:
        if len(self.first) < WINDOW:
            self.first.append(value)
        self.late.append(value)

    @property
    def is_long(self) -> bool:
        return len(self.late) == 2 * WINDOW

    @property
    def begin(self) -> float:
        return sum(self.first) / len(self.first)

    @property
    def now(self) -> float:
        return sum(list(self.late)[-WINDOW:]) / min(WINDOW, len(self.late))

    @property
    def before(self) -> float:
        return sum(list(self.late)[:WINDOW]) / WINDOW


@dataclass(slots=True)
class _Evaluated:
    best: float
    reward: float | None
    """The reward in training by then; None before any."""
    rollout_id: int
    lost: int = 0
    """Consecutive evaluations that were worse by more than the allowed share."""


class Alarms(AlarmWatch):
    """Checks metrics rows in order."""

    def __init__(self, settings: AlarmArgs, rollout: RolloutArgs) -> None:
        self._settings = settings
        self._groups = rollout.rollout_batch_size
        self._samples = rollout.rollout_batch_size * rollout.n_samples_per_prompt
        self._past: dict[str, _Past] = {}
        self._evaluated: dict[str, _Evaluated] = {}
        self._raised: set[tuple[AlarmName, str]] = set()

    def check(self, row: MetricsRow) -> list[Alarm]:
        """Alarms that begin with this row."""
        seen: list[tuple[AlarmName, str, str | None]]
        if names.REWARD in row.metrics:
            first = None if self._past else self._same_reward(row.metrics)
            self._note(row.metrics)
            seen = [("same_reward", "", first), *self._of_rollout()]
        else:
            seen = [*self._of_evaluation(row)]
        found: list[Alarm] = []
        for name, about, text in seen:
            if text is None:
                self._raised.discard((name, about))
            elif (name, about) not in self._raised:
                self._raised.add((name, about))
                found.append(Alarm(name, row.rollout_id, text))
        return found

    def _note(self, metrics: Mapping[str, float]) -> None:
        same = sum(value for name, value in metrics.items() if name.startswith(_SAME))
        failed = sum(value for name, value in metrics.items() if name.startswith(_ERRORS))
        noted = {name: metrics[name] for name in WATCHED if name in metrics}
        noted |= {_NO_VARIANCE: min(1.0, same / self._groups), _FAILED: failed / self._samples}
        for name, value in noted.items():
            self._past.setdefault(name, _Past()).add(value)

    def _same_reward(self, metrics: Mapping[str, float]) -> str | None:
        same = {name.removeprefix(_SAME): count for name, count in metrics.items() if name.startswith(_SAME)}
        if not self._settings.alarm_no_variance or len(same) != 1 or sum(same.values()) < self._groups:
            return None
        (reward,) = same
        # Groups of one sample have no variance, and the metric's name is rounded: compare the mean instead.
        if self._samples == self._groups and not math.isclose(metrics[names.REWARD], float(reward), abs_tol=1e-9):
            return None
        return (
            f"all samples of the first rollout have the reward {reward}, so nothing is learned from them: read some "
            "with `slime samples`, and check that the reward finds their answers and label_key names the gold answers"
        )

    def _of_rollout(self) -> Iterator[tuple[AlarmName, str, str | None]]:
        """Every alarm on rollouts: its name, its subject, and its text if it is raised."""
        past = {name: each for name, each in self._past.items() if each.is_long}
        yield "entropy", "", self._entropy(past)
        yield "length", "", self._length(past)
        yield "no_variance", "", self._no_variance(past)
        for name in KLS:
            yield "kl", name, self._kl(past, name)
        yield "mismatch", "", self._mismatch(past)
        yield "errors", "", self._errors(past)

    def _entropy(self, past: Mapping[str, _Past]) -> str | None:
        limit, entropy, reward = self._settings.alarm_entropy, past.get(ENTROPY), past.get(names.REWARD)
        if entropy is None or reward is None or entropy.now >= limit * entropy.begin or reward.now > reward.begin:
            return None
        return (
            f"{ENTROPY} fell from {entropy.begin:.3g} in the first {WINDOW} rollouts to {entropy.now:.3g}, and the "
            f"reward did not rise ({reward.begin:.3g} to {reward.now:.3g}): the policy has collapsed to few responses. "
            "Read its samples; try a lower lr, a KL term or an entropy_coef"
        )

    def _length(self, past: Mapping[str, _Past]) -> str | None:
        times, length, cut = self._settings.alarm_length, past.get(names.RESPONSE_LENGTH), past.get(TRUNCATED)
        if not times or length is None or cut is None or length.now < times * length.begin or cut.now < CUT_OFF:
            return None
        return (
            f"responses grew from {length.begin:.0f} tokens in the first {WINDOW} rollouts to {length.now:.0f}, and "
            f"{cut.now:.0%} are truncated: read how they end, and check whether the reward favours long ones"
        )

    def _no_variance(self, past: Mapping[str, _Past]) -> str | None:
        share, same = self._settings.alarm_no_variance, past.get(_NO_VARIANCE)
        if not share or same is None or same.now < share:
            return None
        return (
            f"in {same.now:.0%} of the groups all samples have the same reward, so estimators that compare the samples "
            "of a group learn nothing: the prompts are too easy or too hard, or the reward is constant"
        )

    def _kl(self, past: Mapping[str, _Past], name: str) -> str | None:
        limit, kl = self._settings.alarm_kl, past.get(name)
        if not limit or kl is None or kl.now < limit:
            return None
        if kl.now < 2 * kl.before and ("kl", name) not in self._raised:
            return None
        return (
            f"{name} is {kl.now:.3g} nats a token, {kl.before:.3g} in the {WINDOW} rollouts before: the policy "
            "moves away quickly; try a lower lr, a lower clip_grad or a larger KL term"
        )

    def _mismatch(self, past: Mapping[str, _Past]) -> str | None:
        limit, apart = self._settings.alarm_mismatch, past.get(MISMATCH)
        if not limit or apart is None or apart.now < limit or apart.now < 3 * apart.begin:
            return None
        return (
            f"log-probs of trainer and engine differ by {apart.now:.3g} nats a token, {apart.begin:.3g} in the first "
            f"{WINDOW} rollouts: check that both use the same weights, precision, temperature and chat template; "
            "max_mean_logprob_abs_diff can end a run on this"
        )

    def _errors(self, past: Mapping[str, _Past]) -> str | None:
        share, failed = self._settings.alarm_errors, past.get(_FAILED)
        if not share or failed is None or failed.now < share:
            return None
        return (
            f"{failed.now:.1%} of the samples could not be generated or scored; the metrics rollout/errors/... count "
            "the reasons, and `slime why` shows the reason of one sample"
        )

    def _of_evaluation(self, row: MetricsRow) -> Iterator[tuple[AlarmName, str, str | None]]:
        reward = self._past.get(names.REWARD)
        for dataset in names.eval_datasets(row.metrics):
            value = row.metrics[names.eval_reward(dataset)]
            at = self._evaluated.get(dataset)
            if at is None or value > at.best:
                self._evaluated[dataset] = _Evaluated(value, reward.now if reward else None, row.rollout_id)
                yield "hacking", dataset, None
            else:
                yield "hacking", dataset, self._hacking(dataset, at, value, reward)

    def _hacking(self, dataset: str, at: _Evaluated, value: float, reward: _Past | None) -> str | None:
        share = self._settings.alarm_hacking
        is_lost = share > 0 and value < at.best - share * abs(at.best)
        at.lost = at.lost + 1 if is_lost else 0
        if at.lost < 2 or reward is None:
            return None
        then = reward.begin if at.reward is None else at.reward
        if reward.now <= then:
            return None
        return (
            f"{names.eval_reward(dataset)} fell from {at.best:.3g} after {at.rollout_id} rollouts to {value:.3g}, "
            f"while the reward in training rose from {then:.3g} to {reward.now:.3g}: read samples with a high reward; "
            "it may reward something that the evaluation does not"
        )


def read_alarms(run: Path) -> list[Alarm]:
    """A run's alarms so far, from its folder, oldest first.

    Raises:
        RunFolderError: its run file or its metrics cannot be read.
    """
    values = read_run_file(nofollow(run / "run.toml"))
    try:
        settings = AlarmArgs.model_validate({key: values[key] for key in AlarmArgs.model_fields if key in values})
        sizes = ("rollout_batch_size", "n_samples_per_prompt")
        rollout = RolloutArgs.model_validate({key: values[key] for key in sizes if key in values})
    except ValidationError as error:
        raise RunFolderError(f"{run / 'run.toml'} is not a valid run file: {error}") from None
    alarms = Alarms(settings, rollout)
    return [alarm for row in MetricsLog.read(run / "metrics.jsonl") for alarm in alarms.check(row)]
