"""A generator's start and close, limits of its own settings, reward of its own and failures, in real runs."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime_core.catalog import Catalog
from slime_core.config import Plan, parse_config, read_run_file, resolve
from slime_core.run import RunFolder, Session
from slime_core.sample import Json, Status
from slime_core.telemetry import MetricsLog
from slime_view.samples.shard import Shard
from tests.conftest import Project, Slime

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


@pytest.fixture
def log(install_plugin: Callable[..., None], tmp_path: Path) -> Path:
    install_plugin("slime-serving", {"slime_serving.py": SERVING}, entry_points={"serving": "slime_serving"})
    return tmp_path / "log"


@pytest.fixture
def plan_of(project: Project, log: Path) -> Callable[..., Plan]:
    def make(fails: str = "", **changes: Json) -> Plan:
        own: dict[str, Json] = {"use": "serving", "serving": {"log": str(log), "fails": fails}}
        reward: Json = {"use": {"./rewards.py:digits": 1.0, "environment": 2.0}}
        values = {"generator": own, "reward": reward, "max_error_rate": 0.5, "save": str(project.run)} | changes
        return resolve(parse_config(read_run_file(project.write_run(**values))), Catalog.discover())

    return make


def run(plan: Plan, work: Callable[[Session], Any] | None = None) -> object:
    async def whole(session: Session) -> object:
        async with session:
            await session.publish(0)
            return await work(session) if work is not None else None

    with RunFolder.open(plan.config.run.save, plan.config.to_dict()) as folder:
        return asyncio.run(whole(Session(plan, folder)))


def test_it_starts_before_the_first_sample_and_ends_with_the_run(plan_of: Callable[..., Plan], log: Path) -> None:
    async def rollout(session: Session) -> dict[str, float]:
        begun.append(log.read_text())  # noqa: ASYNC240
        return dict((await session.scheduler.collect(0, want=2)).metrics)

    begun: list[str] = []
    metrics = run(plan_of(), rollout)
    assert begun == ["start\n"]
    assert log.read_text() == "start\nclose\n"
    assert isinstance(metrics, dict)
    assert metrics["rollout/serving/running/mean"] == 3.0
    assert metrics["rollout/reward/environment"] == 0.5
    assert metrics["rollout/errors/tool_broke"] == 2.0


def test_it_is_closed_after_an_error_and_what_that_raises_keeps_nothing_open(
    plan_of: Callable[..., Plan], log: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def breaks(session: Session) -> None:
        raise KeyError("in the loop")

    with pytest.raises(KeyError, match="in the loop"):
        run(plan_of("close"), breaks)
    assert log.read_text() == "start\nclose\n"
    assert "generator serving of plugin slime-serving could not be closed: it does not end" in caplog.text


def test_failed_samples_are_stored_with_their_tokens_and_why(
    project: Project, log: Path, slime: Slime, plan_of: Callable[..., Plan]
) -> None:
    plan_of()
    assert slime("train", "run.toml").code == 0
    row = next(iter(MetricsLog.read(project.run / "metrics.jsonl"))).metrics
    assert row["rollout/errors/tool_broke"] == 4.0
    shard = Shard(project.run / "samples" / "rollout_000000.parquet")
    read = shard.groups()
    assert [len(group.samples) for group in read.kept] == [3] * 4
    failed = [sample for group in read.failed for sample in group.samples]
    assert [sample.status for sample in failed] == [Status.FAILED] * 4
    assert {sample.failure_reason for sample in failed} == {"tool_broke"}
    assert all(sample.response_length and len(sample.tokens) > sample.response_length for sample in failed)
