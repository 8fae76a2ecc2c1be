"""Text of models and strangers reaches a terminal as text, through every command that prints some."""

import asyncio
import io
import json
import logging
import re
import sys
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from slime_core.cli import run_cli
from slime_core.config import write_toml
from slime_core.errors import drawn, last_of, one_line, printable, styled
from slime_core.run import GroupState, Ledger
from slime_core.sample import Group, GroupId, Sample, Status
from slime_core.secrets import drawable, redacted_output
from slime_core.telemetry import Display, MetricsLog, MetricsRow
from slime_view.dashboard import Dashboard
from slime_view.spans import SpanLog

Slime = Callable[..., Any]
HOSTILE = (
    "\x1b[2J\x1b[31m[red]x\x1b]0;title\x07\x1b]8;;http://evil\x1b\\y\x1bP1q\x9b2J\x9d0;t\x9c\x08\r\x00\x7f"
    "\u202etxt\u2066\u2069\u200f\u061c\u2028\u2029\u200b\ufeff\ud83d\U000e0041"
)
SEEN = "[red]x"
"""Of it: that the text was shown at all, markup included."""


MOVES = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
MARKS = "\u200e\u200f\u061c"


def unsafe(text: str) -> set[str]:
    """Characters that a terminal obeys: controls, what turns the order of letters, ends of lines, halves of pairs."""
    return {
        each
        for each in text
        if (unicodedata.category(each) in {"Cc", "Cs", "Zl", "Zp"} and each not in "\n\t")
        or unicodedata.bidirectional(each) in MOVES
        or each in MARKS
    }


@given(st.text(st.characters(exclude_categories=())) | st.text(st.sampled_from([*HOSTILE, *"ab\n\t[0;31m"])))
def test_no_text_keeps_what_a_terminal_obeys(text: str) -> None:
    for made in (printable(text), one_line(text), last_of(text, 9)):
        assert not unsafe(made)
        made.encode()
    assert not set("\n\t") & set(one_line(text))
    assert len(last_of(text, 9)) <= 9
    assert printable(printable(text)) == printable(text)


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5))
def test_escaped_json_is_the_same_json(value: object) -> None:
    assert json.loads(printable(json.dumps(value, ensure_ascii=False))) == value


def test_colours_of_a_command_stay_and_nothing_that_hides_or_moves() -> None:
    kept = "\x1b[0m\x1b[31mred\x1b[1;36mb\x1b[2mdim\x1b[m"
    assert styled(kept) == drawn(kept) == kept
    for order in (*"\r\x9b", "\x1b[8m", "\x1b[2J", "\x1b[1A", "\x1b[?25l", "\x1b]0;t\x07", "\x1b[40m", "\x1b[30;8m"):
        assert not unsafe(styled(order)), order
    assert drawn("\x1b[2K\r\x1b[1A\x1b[?25l") == "\x1b[2K\r\x1b[1A\x1b[?25l"
    assert "\x1b" not in drawn("\x1b]0;t\x07\x1bP\x1b\\")


def test_output_errors_and_log_lines_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    stream, log = io.StringIO(), logging.getLogger("slime_core.test_terminal")
    handler = logging.StreamHandler(stream)
    log.addHandler(handler)
    try:
        with redacted_output():
            print(HOSTILE)
            print(HOSTILE, file=sys.stderr)
            log.warning("said %s", HOSTILE)
            try:
                raise RuntimeError(HOSTILE)
            except RuntimeError:
                log.exception("failed")
            print("\x1b[2K", end="", file=drawable(sys.stdout))
    finally:
        log.removeHandler(handler)
    out, err = capsys.readouterr()
    assert out.endswith("\x1b[2K")
    for text in (out.removesuffix("\x1b[2K"), err, stream.getvalue()):
        assert SEEN in text
        assert unsafe(text) <= {"\x1b"}
        assert text.count("\x1b") == text.count("\x1b[31m")  # a colour, in what no command has marked as foreign
    assert "\x1b" not in stream.getvalue()


class Tty(io.StringIO):
    """A terminal, to click and rich."""

    encoding = "utf-8"  # type: ignore[assignment]

    def isatty(self) -> bool:
        return True


SPOKEN = HOSTILE.replace("\ud83d", "").replace("\0", "")
"""What Parquet keeps and what can be typed."""
GROUP = GroupId(SPOKEN, 0, 0, 0)


@pytest.fixture
def run(tmp_path: Path, write_samples: Callable[..., None]) -> Path:
    """A run folder whose names, reasons and texts are hostile."""
    group = Group(GROUP, [])
    for index in range(2):
        sample = Sample(prompt=HOSTILE, response=HOSTILE, label=HOSTILE, index=index, reward={"score": 0.5, SPOKEN: 1})
        sample.status, sample.failure_reason = Status.FAILED, SPOKEN
        sample.weight_versions, sample.generate_function_path = [SPOKEN], SPOKEN
        group.samples.append(sample)
    write_samples(tmp_path / "samples", {0: [group]}, {number: {SPOKEN: group.samples} for number in (0, 1)})
    (tmp_path / "run.toml").write_text(write_toml({"hf_checkpoint": SPOKEN, "seed": 3}))
    with MetricsLog(tmp_path / "metrics.jsonl") as log:
        log.append(MetricsRow(0, 1, 0.0, {"rollout/step": 0, SPOKEN: 1.0, f"eval/{SPOKEN}": 1.0}))
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.record(GroupState.DRAWN, [GROUP], 0)
    ledger.drop({GROUP: SPOKEN}, 0)
    ledger.close()
    spans = SpanLog(tmp_path / "spans.jsonl")
    with spans.phase(SPOKEN, 0):
        pass
    asyncio.run(spans.write(0))
    files = {name: {"bytes": 1, "sha256": "0" * 64} for name in (SPOKEN, "state.json")}
    saved = tmp_path / "checkpoints" / "rollout_000001"
    saved.mkdir(parents=True)
    (saved / "manifest.json").write_text(json.dumps({"schema_version": 1, "rollout_id": 1, "files": files}))
    return tmp_path


def test_no_command_prints_foreign_text_as_it_is(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = run / "rows.jsonl"
    rows.write_text(json.dumps({"prompt": SPOKEN, "response": HOSTILE, "label": HOSTILE}) + "\n")
    silent = {"plugins list", "report", "reward try"}  # they name what is installed, a path, the end of a text
    wrong: list[tuple[object, ...]] = []
    for typed in (
        ("samples", run, "--all"),
        ("samples", run, "--eval", 0),
        ("samples", run, "--all", "--json"),
        ("why", run, str(GROUP)),
        ("why", run, f"{GROUP}/0"),
        ("why", run, SPOKEN),
        ("ledger", run),
        ("ledger", run, "--state", "dropped"),
        ("ledger", run, "--group", GROUP),
        ("trace", run),
        ("diff", run, run, "--all"),
        ("checkpoints", run),
        ("report", run),
        ("agent", "show", run),
        ("reward", "try", "math", "--data", rows),
        ("reward", "try", SPOKEN, "--data", rows),
        ("plan", SPOKEN),
        ("eval", run, "--eval-prompt-data", SPOKEN, SPOKEN),
        ("generate", SPOKEN),
        ("plugins", "show", SPOKEN),
        ("plugins", "check", SPOKEN),
        ("plugins", "list"),
        (SPOKEN,),
        ("train", "--lr", SPOKEN),
    ):
        out, err = Tty(), Tty()
        monkeypatch.setattr(sys, "stdout", out)
        monkeypatch.setattr(sys, "stderr", err)
        code = run_cli([str(each) for each in typed])
        text = out.getvalue() + err.getvalue()
        plain = re.sub(r"\x1b\[[0-4;]*(3[0-7])?m", "", text)
        if unsafe(plain) or f"\x1b[31m{SEEN}" in text:
            wrong.append((typed[:2], code, unsafe(plain), text[-400:]))
        if SEEN not in plain and not silent & {typed[0], " ".join(map(str, typed[:2]))}:
            wrong.append((typed[:2], code, "is not shown", text[-400:]))
    assert not wrong, "\n".join(map(str, wrong))


def test_displays_show_foreign_text_as_text() -> None:
    for tty, display in (
        (stream := Tty(), Display(stream)),
        (stream := Tty(), Dashboard(Console(file=stream, force_terminal=True, width=200))),
    ):
        display.message(HOSTILE)
        display.start(2, HOSTILE)
        display.phase(HOSTILE, lambda: HOSTILE)
        display.row(0, {"eval/" + HOSTILE: 1.0, "rollout/raw_reward": 1.0})
        display.message(HOSTILE)
        display.stop()
        text = tty.getvalue()
        plain = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|\r", "", text)
        assert SEEN in plain
        assert not unsafe(plain)
        assert "\x1b[2J" not in text
        assert f"\x1b[31m{SEEN}" not in text


def test_a_model_that_says_control_characters_is_shown(slime: Slime, tiny_model: Path) -> None:
    ran = slime("generate", tiny_model, "x", "--n-samples-per-prompt", 4, "--max-new-tokens", 64, "--temperature", 2)
    assert ran.code == 0, ran.err
    assert not unsafe(ran.out)
    assert "\\u00" in ran.out
