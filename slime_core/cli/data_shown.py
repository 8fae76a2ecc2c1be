"""Data sets as `slime plan` prints them: rows, the first prompt as the model gets it, its label, lengths in tokens.

Example:

    for line in data_lines(report, context=4096):
        print(line)
"""

from collections.abc import Iterator

from slime_core.run import DataRead, DataSetReport
from slime_core.sample import Json
from slime_core.stats import percentile

SHOWN = 200
"""Characters of a prompt, half of them from its end, where a chat template opens the answer."""


def described_data(read: DataRead) -> list[dict[str, Json]]:
    """Every data set as plain data, for `slime plan --json`."""
    return [
        {
            "name": each.name,
            "prompts": each.prompts if each.epoch is None else each.epoch,
            "first_prompt": [dict(message) for message in each.first_prompt]
            if isinstance(each.first_prompt, list)
            else each.first_prompt,
            "label": each.label,
            "tokens": {**lengths(each)},
            "context": read.context,
        }
        for each in read.reports
    ]


def lengths(report: DataSetReport) -> dict[str, float]:
    """Tokens of its prompts or dialogs: p50, p99 and max; empty where prompts are messages that a generator renders."""
    if not (found := sorted(report.lengths)):
        return {}
    return {"p50": percentile(found, 0.5), "p99": percentile(found, 0.99), "max": found[-1]}


def data_lines(report: DataSetReport, context: int | None) -> Iterator[tuple[str, str]]:
    """Lines about one data set, each with its title."""
    made = "" if report.epoch is None else f" looked at, of {report.epoch} in an epoch"
    yield f"data {report.name}", f"{report.prompts} {report.unit}s{made}"
    yield "  first prompt", _shortened(repr(report.first_prompt))
    if report.label is not None:
        yield "  its label" if report.unit == "prompt" else "  its answer", _shortened(repr(report.label))
    if found := lengths(report):
        part = f" of {len(report.lengths)} that were measured" if len(report.lengths) < report.prompts else ""
        of = f"; prompt and answer together may have {context}" if context is not None else ""
        yield f"  {report.unit} tokens", ", ".join(f"{name} {value}" for name, value in found.items()) + part + of


def _shortened(text: str) -> str:
    """Both ends of a text that `repr` made: on one line, and with every control character escaped."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN // 2]} ... {text[-SHOWN // 2 :]}"
