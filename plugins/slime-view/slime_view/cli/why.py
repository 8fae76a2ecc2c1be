"""`slime why`: the history of one sample or group, from its draw to its use in training."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean, pstdev

import click

from slime_core.errors import ConfigError, last_of, printable
from slime_core.run import GroupState
from slime_core.sample import SCORE, Json, Sample
from slime_view.group_history import GroupHistory, Move
from slime_view.samples import Entry
from slime_view.trace import waits_of
from slime_view.transcripts import prompt_text

TEXT = 400
"""Maximum characters of a shown text."""
NO_SAMPLES = "its samples are not written yet, or their file was deleted"
STEP_METRICS = ("train/loss", "train/grad_norm")


@click.command(short_help="Show a sample's history: drawn, generated, scored, trained.")
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("sample")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with the whole record of each sample.")
def why(run: Path, sample: str, as_json: bool) -> None:
    """Show the history of SAMPLE in the run folder RUN: a group, or GROUP/INDEX for one sample of it.

    \b
    slime why runs/first train.jsonl:e0:r17:d17/2
    slime why runs/first train.jsonl:e0:r17:d17

    `slime samples RUN` lists groups and sample numbers. Works while the run is active.
    """  # noqa: D301  # \b keeps click from filling the lines below it
    group, index = _named(sample)
    history = GroupHistory.of(run, group)
    members = _of_index(history, index)
    if as_json:
        click.echo(json.dumps(_as_plain_data(history, members), indent=2))
        return
    for label, text in _lines(history, members, index):
        click.echo(f"{click.style(f'{label:<10}', bold=True)} {printable(text)}".rstrip())


def _named(text: str) -> tuple[str, int | None]:
    group, slash, index = text.rpartition("/")
    return (group, int(index)) if slash and index.isdecimal() else (text, None)


def _of_index(history: GroupHistory, index: int | None) -> list[Entry]:
    if index is None:
        return list(history.members)
    found = [each for each in history.members if each.sample.index == index]
    if history.members and not found:
        numbers = sorted({each.sample.index or 0 for each in history.members})
        raise ConfigError(f"group {history.group} has no sample {index}: it has {', '.join(map(str, numbers))}")
    return found


def _lines(history: GroupHistory, members: Sequence[Entry], index: int | None) -> Iterator[tuple[str, str]]:
    first = history.moves[0]
    source, epoch, row, draw = history.group
    yield "drawn", f"in rollout {first.rollout_id}: row {row} of {source}, epoch {epoch}, draw {draw}"
    if not history.members:
        yield "generated", NO_SAMPLES
    for member in members:
        yield from _sample_lines(history, member, whole=index is not None)
    if len(history.members) > 1:
        yield "group", _rewards(history.members)
    for move in history.moves[1:]:
        yield move.state.value, _moved(move, history.drop_reason)


def _sample_lines(history: GroupHistory, member: Entry, *, whole: bool) -> Iterator[tuple[str, str]]:
    sample = member.sample
    yield f"sample {sample.index}", _generated(history, sample)
    if sample.failure_reason:
        yield "", f"failed: {sample.failure_reason}"
    if member.left_out:
        yield "", "left out: its group continued without it"
    if not whole:
        return
    for began, waits in _times(history, sample):
        yield "in flight", f"{_when(began)}: {', '.join(f'{what} {seconds:.3f} s' for what, seconds in waits)}"
    yield "prompt", last_of(prompt_text(sample.prompt), TEXT)
    yield "response", last_of(sample.response, TEXT)
    yield "label", last_of(json.dumps(sample.label), TEXT)
    yield "scored", _scored(history, sample)
    yield "mask", _mask(sample)


def _generated(history: GroupHistory, sample: Sample) -> str:
    by = sample.generate_function_path or history.choices.get("generator", "")
    versions = ", ".join(dict.fromkeys(sample.weight_versions)) or "none"
    generated = f"{sample.response_length} tokens, {sample.status.value}, by {_plugin_of(history, 'generator', by)}"
    return f"{generated}, weights {versions}, seed {history.seed_of(sample)}, reward {_reward(sample)}"


def _scored(history: GroupHistory, sample: Sample) -> str:
    if sample.custom_rm_path:
        by = [_plugin_of(history, "reward", sample.custom_rm_path)]
    else:
        by = [
            _plugin_of(history, role, name)
            for role in ("reward", "group_reward")
            for name in _names(history.choices.get(role))
        ]
    parts = sample.reward if isinstance(sample.reward, Mapping) else {}
    parts_text = "".join(f", {name} {value:.4g}" for name, value in parts.items() if name != SCORE)
    return f"{_reward(sample)} by {', '.join(by) or 'no reward'}{parts_text}"


def _mask(sample: Sample) -> str:
    if sample.remove_sample:
        return "none of it is trained on: it counts only in metrics and normalisation"
    text = f"{sample.effective_response_length} of {sample.response_length} tokens are trained on"
    pairs = zip(sample.rollout_log_probs or (), sample.loss_mask or (), strict=False)
    if trained := [each for each, mask in pairs if mask]:
        text += f", log-prob {fmean(trained):.4g} on average and {min(trained):.4g} at least"
    return text


def _rewards(members: Sequence[Entry]) -> str:
    rewards = [score for each in members if (score := _score(each.sample)) is not None]
    text = f"rewards {' '.join(f'{score:g}' for score in rewards)}"
    if not rewards:
        return "none of its samples was scored"
    spread = pstdev(rewards)
    text += f": mean {fmean(rewards):.4g}, standard deviation {spread:.4g}"
    return text if not math.isclose(spread, 0.0) else f"{text}; estimators that compare its samples learn nothing"


def _moved(move: Move, drop_reason: str | None) -> str:
    text = f"in rollout {move.rollout_id}"
    if move.state is GroupState.DROPPED:
        return f"{text}: {move.reason or drop_reason or 'no reason given'}"
    if move.state is not GroupState.TRAINED:
        return text
    text += f", use {move.use}, weight {move.weight:g}"
    if move.row is None:
        return f"{text}; its metrics are not written yet"
    metrics = (f"{name} {move.row.metrics[name]:.4g}" for name in STEP_METRICS if name in move.row.metrics)
    return ", ".join([text, f"step {move.row.step}", *metrics, f"reported {_when(move.row.time)}"])


def _times(history: GroupHistory, sample: Sample) -> Iterator[tuple[float, list[tuple[str, float]]]]:
    for origin, span in history.spans:
        if span.index == sample.index:
            waits = [(what, (ended - began) / 1e6) for what, began, ended in waits_of(span)]
            yield origin + span.marks[0][1] / 1e6, waits


def _when(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _score(sample: Sample) -> float | None:
    return sample.reward.get(SCORE) if isinstance(sample.reward, Mapping) else sample.reward


def _reward(sample: Sample) -> str:
    score = _score(sample)
    return "none" if score is None else f"{score:.4g}"


def _names(use: Json) -> list[str]:
    return [use] if isinstance(use, str) else [str(name) for name in use] if isinstance(use, list | dict) else []


def _plugin_of(history: GroupHistory, role: str, use: Json) -> str:
    named = []
    for name in _names(use):
        plugin = history.plugins.get(f"{role}/{name.rpartition('/')[2] if not name.startswith('.') else name}")
        named.append(f"{name} ({plugin})" if plugin else name)
    return ", ".join(named) or "the default"


def _as_plain_data(history: GroupHistory, members: Sequence[Entry]) -> dict[str, Json]:
    moves: list[Json] = [move.to_dict() for move in history.moves]
    samples: list[Json] = [
        {
            **each.sample.to_dict(),
            "left_out": each.left_out,
            "seed": history.seed_of(each.sample),
            "in_flight": [
                {"began": began, "seconds": [[what, seconds] for what, seconds in waits]}
                for began, waits in _times(history, each.sample)
            ],
        }
        for each in members
    ]
    plugins: dict[str, Json] = {**history.plugins}
    return {
        "schema_version": 1,
        "id": str(history.group),
        "drop_reason": history.drop_reason,
        "moves": moves,
        "choices": {**history.choices},
        "plugins": plugins,
        "samples": samples,
    }
