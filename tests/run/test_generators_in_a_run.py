"""A generator's start and close, limits of its own settings, reward of its own and failures, in real runs."""

import pytest

from slime_core.sample import Status
from slime_view.samples.shard import Shard
from tests.conftest import Install, Project, Slime
from tests.run.reading import metrics

SERVING = '''
import asyncio
from pathlib import Path

from pydantic import Field

from slime_core import Settings, Status, hookimpl
from slime_core.roles import GeneratorSpec

SLIME_API = "1"


class ServingSettings(Settings):
    """`[generator.serving]`."""

    log: str = Field(description="Where it notes what happens.")
    fails: str = Field("", description="What raises.")
    at_once: int = Field(3, description="Samples at once.")


class Serving:
    """Holds a task for the whole run, as a server would."""

    def __init__(self, settings, setup):
        self.settings, self.server, self.running = settings, None, 0

    def note(self, text):
        with Path(self.settings.log).open("a") as file:
            print(text, file=file)

    async def start(self):
        self.server = asyncio.create_task(asyncio.Event().wait())
        self.note("start")
        if self.settings.fails == "start":
            raise OSError("the port is taken")

    async def close(self):
        self.server.cancel()
        self.note("close")
        if self.settings.fails == "close":
            raise OSError("it does not end")

    async def __call__(self, sample, ctx):
        assert self.server is not None and not self.server.done()
        self.running += 1
        assert self.running <= self.settings.at_once
        ctx.measure("running", 3)
        out = await ctx.generate(ctx.tokenizer.encode(str(sample.prompt)))
        sample.tokens = ctx.tokenizer.encode(str(sample.prompt))
        sample.append_response_tokens(output=out, text=ctx.tokenizer.decode(out.tokens))
        sample.status, sample.reward = Status.COMPLETED, 0.5
        if sample.index == 1:
            sample.status, sample.failure_reason = Status.FAILED, "tool broke"
        self.running -= 1
        return [sample]


@hookimpl
def slime_generators():
    yield GeneratorSpec(
        "serving",
        Serving,
        ServingSettings,
        max_concurrency=lambda settings: settings.at_once,
    )
'''


@pytest.mark.parametrize("fails", ["", "close"])
def test_it_starts_before_the_first_sample_and_is_closed_at_the_end(
    project: Project, slime: Slime, install_plugin: Install, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    """Samples that it marks as failed are stored with their tokens and the reason."""
    install_plugin("slime-serving", {"slime_serving.py": SERVING}, entry_points={"serving": "slime_serving"})
    log = project.root / "log"
    project.write_run(
        generator={"use": "serving", "serving": {"log": str(log), "fails": fails}},
        reward={"use": {"./rewards.py:digits": 1.0, "environment": 2.0}},
        max_error_rate=0.5,
        num_rollout=1,
    )
    slime.ok("train", "run.toml")
    assert log.read_text() == "start\nclose\n"
    closed = "generator serving of plugin slime-serving could not be closed: it does not end"
    assert (closed in caplog.text) == bool(fails)
    [row] = metrics(project.run)
    assert row["rollout/serving/running/mean"] == 3.0
    assert row["rollout/reward/environment"] == 0.5
    assert row["rollout/errors/tool_broke"] == 4.0
    read = Shard(project.run / "samples" / "rollout_000000.parquet").groups()
    assert [len(group.samples) for group in read.kept] == [3] * 4
    failed = [sample for group in read.failed for sample in group.samples]
    assert [(sample.status, sample.failure_reason) for sample in failed] == [(Status.FAILED, "tool_broke")] * 4
    assert all(sample.response_length and len(sample.tokens) > sample.response_length for sample in failed)
