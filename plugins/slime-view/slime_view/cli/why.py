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
from slime_view.life import Life, Move
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
    life = Life.of(run, group)
    members = _of_index(life, index)
    if as_json:
        click.echo(json.dumps(_as_plain_data(life, members), indent=2))
        return
    for label, text in _lines(life, members, index):
        click.echo(f"{click.style(f'{label:<10}', bold=True)} {printable(text)}".rstrip())


def _named(text: str) -> tuple[str, int | None]:
    group, slash, index = text.rpartition("/")
    return (group, int(index)) if slash and index.isdecimal() else (text, None)


def _of_index(life: Life, index: int | None) -> list[Entry]:
    if index is None:
        return list(life.members)
    found = [each for each in life.members if each.sample.index == index]
    if life.members and not found:
        numbers = sorted({each.sample.index or 0 for each in life.members})
        raise ConfigError(f"group {life.group} has no sample {index}: it has {', '.join(map(str, numbers))}")
    return found


def _lines(life: Life, members: Sequence[Entry], index: int | None) -> Iterator[tuple[str, str]]:
    first = life.moves[0]
    source, epoch, row, draw = life.group
    yield "drawn", f"in rollout {first.rollout_id}: row {row} of {source}, epoch {epoch}, draw {draw}"
    if not life.members:
        yield "generated", NO_SAMPLES
    for member in members:
        yield from _sample_lines(life, member, whole=index is not None)
    if len(life.members) > 1:
        yield "group", _rewards(life.members)
    for move in life.moves[1:]:
        yield move.state.value, _moved(move, life.drop_reason)


def _sample_lines(life: Life, member: Entry, *, whole: bool) -> Iterator[tuple[str, str]]:
    sample = member.sample
    yield f"sample {sample.index}", _generated(life, sample)
    if sample.failure_reason:
        yield "", f"failed: {sample.failure_reason}"
    if member.left_out:
        yield "", "left out: its group continued without it"
    if not whole:
        return
    for began, waits in _times(life, sample):
        yield "in flight", f"{_when(began)}: {', '.join(f'{what} {seconds:.3f} s' for what, seconds in waits)}"
    yield "prompt", last_of(prompt_text(sample.prompt), TEXT)
    yield "response", last_of(sample.response, TEXT)
    yield "label", last_of(json.dumps(sample.label), TEXT)
    yield "scored", _scored(life, sample)
    yield "mask", _mask(sample)


def _generated(life: Life, sample: Sample) -> str:
    by = sample.generate_function_path or life.choices.get("generator", "")
    versions = ", ".join(dict.fromkeys(sample.weight_versions)) or "none"
    generated = f"{sample.response_length} tokens, {sample.status.value}, by {_who(life, 'generator', by)}"
    return f"{generated}, weights {versions}, seed {life.seed_of(sample)}, reward {_reward(sample)}"


def _scored(life: Life, sample: Sample) -> str:
    if sample.custom_rm_path:
        by = [_who(life, "reward", sample.custom_rm_path)]
    else:
        by = [_who(life, role, name) for role in ("reward", "group_reward") for name in _names(life.choices.get(role))]
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


def _times(life: Life, sample: Sample) -> Iterator[tuple[float, list[tuple[str, float]]]]:
    for origin, span in life.spans:
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


def _who(life: Life, role: str, use: Json) -> str:
    named = []
    for name in _names(use):
        plugin = life.plugins.get(f"{role}/{name.rpartition('/')[2] if not name.startswith('.') else name}")
        named.append(f"{name} ({plugin})" if plugin else name)
    return ", ".join(named) or "the default"


def _as_plain_data(life: Life, members: Sequence[Entry]) -> dict[str, Json]:
    moves: list[Json] = [move.to_dict() for move in life.moves]
    samples: list[Json] = [
        {
            **each.sample.to_dict(),
            "left_out": each.left_out,
            "seed": life.seed_of(each.sample),
            "in_flight": [
                {"began": began, "seconds": [[what, seconds] for what, seconds in waits]}
                for began, waits in _times(life, each.sample)
            ],
        }
        for each in members
    ]
    plugins: dict[str, Json] = {**life.plugins}
    return {
        "schema_version": 1,
        "id": str(life.group),
        "drop_reason": life.drop_reason,
        "moves": moves,
        "choices": {**life.choices},
        "plugins": plugins,
        "samples": samples,
    }
