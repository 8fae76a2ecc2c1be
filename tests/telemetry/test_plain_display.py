import io
import threading
import time

from slime_core.telemetry import Display
from slime_core.telemetry.display import Progress, seconds
from tests.tables import table

ROW = {
    "rollout/raw_reward": 0.25,
    "rollout/response_len/mean": 41.25,
    "perf/tokens_per_sec": 3412.4,
    "perf/step_time": 1.5,
    "train/loss": 0.01,
}


class Lines(io.StringIO):
    """A stream that tells when a text has been written to it."""

    def __init__(self, awaited: str) -> None:
        super().__init__()
        self.awaited, self.seen = awaited, threading.Event()

    def write(self, text: str) -> int:
        if self.awaited in text:
            self.seen.set()
        return super().write(text)


def test_one_line_a_rollout_and_one_an_evaluation() -> None:
    stream = io.StringIO()
    with Display(stream) as display:
        display.start(10, "demo")
        beside = {"plugin/reward/math/p50": 0.1, "perf/engine/0/requests": 8.0}
        display.row(0, {"eval/heldout": 0.125, "eval/heldout-truncated_ratio": 0.5, **beside})
        display.row(0, ROW)
        display.row(9, ROW)
    first, evaluation, rollout, last = stream.getvalue().splitlines()
    assert first == "demo: 10 rollouts"
    assert evaluation == "eval at 0/10  heldout 0.125"
    assert rollout.startswith("rollout  1/10  reward 0.250  length 41.2  3412 tokens/s  1.50 s  ")
    assert rollout.endswith(" to go")
    assert last == "rollout 10/10  reward 0.250  length 41.2  3412 tokens/s  1.50 s"


def test_a_resumed_run_says_where_it_goes_on() -> None:
    stream = io.StringIO()
    with Display(stream) as display:
        display.start(10, "demo", first_rollout=5)
        display.row(5, ROW)
    assert stream.getvalue().startswith("demo: 10 rollouts, resumed after 5\nrollout  6/10  ")


def test_until_the_first_row_each_phase_has_a_line() -> None:
    stream = io.StringIO()
    with Display(stream) as display:
        display.phase("before the run is named")
        display.start(10, "demo")
        display.phase("trainer: loading the model")
        display.phase("8 groups of 8 samples", lambda: "engine: 64 samples")
        display.row(0, {"eval/heldout": 0.125})
        display.phase("8 groups of 8 samples")
        display.row(0, ROW)
        display.phase("checkpoint")
    lines = stream.getvalue().splitlines()
    assert lines[:4] == [
        "demo: 10 rollouts",
        "trainer: loading the model",
        "8 groups of 8 samples",
        "eval at 0/10  heldout 0.125",
    ]
    assert [line.split()[0] for line in lines[4:]] == ["rollout"]


def test_many_short_steps_without_a_reward_share_lines() -> None:
    stream = io.StringIO()
    with Display(stream) as display:
        display.start(300, "warm start", unit="step")
        for step in range(300):
            display.row(step, {"train/loss": 2.5})
    lines = stream.getvalue().splitlines()
    assert lines[0] == "warm start: 300 steps"
    assert lines[1].startswith("step   1/300  loss 2.5000")
    assert lines[-1] == "step 300/300  loss 2.5000"
    assert len(lines) < 300


def test_silence_is_broken_with_what_is_waited_for() -> None:
    stream = Lines("waiting for: 8 groups of 8 samples (reward judge: 3 samples) (")
    held = ["engine: 64 samples"]
    with Display(stream, silence=0.02) as display:
        display.start(10, "demo")
        display.phase("8 groups of 8 samples", lambda: held[0])
        held[0] = "reward judge: 3 samples"
        assert stream.seen.wait(30)


def test_messages_cannot_break_lines_or_steer_the_terminal() -> None:
    stream = io.StringIO()
    Display(stream).message("a\x1b[31m\nb\r\x07c")
    assert stream.getvalue() == "a [31m b  c\n"


def test_a_run_outlives_its_reader() -> None:
    stream = io.StringIO()
    display = Display(stream)
    display.start(2, "demo")
    stream.close()
    display.row(0, ROW)
    display.message("still here")
    display.stop()


@table(
    "value, text",
    [(0.0, "0.0 s"), (4.24, "4.2 s"), (59.99, "60.0 s"), (65.0, "1:05"), (3599.7, "1:00:00"), (7265.0, "2:01:05")],
)
def test_durations_for_people(value: float, text: str) -> None:
    assert seconds(value) == text


def test_what_came_before_the_first_rollout_is_not_extrapolated() -> None:
    progress = Progress("demo", total=10, done=0, began=time.monotonic() - 10_000)
    assert progress.remaining() is None
    progress.finish(0, ROW)
    remaining = progress.remaining()
    assert remaining is not None
    assert 9 * 1.5 <= remaining < 9 * 1000
