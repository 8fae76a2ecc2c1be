"""A transport that nobody here knows, of a package that lies outside of this tree, carries a real training."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slime_core.sample import Json
from slime_testing import CheckStatus
from slime_testing.tensors.transport import TransportContract
from tests.strangers.conftest import Site

Project = Any


def learned(folder: Path) -> list[dict[str, Json]]:
    """Metrics of a run, but those of the machine."""
    rows = [json.loads(line)["metrics"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if not k.startswith(("perf/", "plugin/"))} for row in rows]


def test_a_training_is_the_same_to_the_bit_whatever_its_weights_travel_by(project: Project, site: Site) -> None:
    found = {}
    for name in ("shared-buffer", "tcp"):
        engine: Json = {"local": {"workers": 2}}
        project.write_run(save=f"runs/{name}", engine=engine, rollout_num_engines=2, transport={"use": name})
        site.run(project.root, "-m", "slime_core", "train", "run.toml", "--no-progress")
        found[name] = learned(project.root / "runs" / name)
    assert len(found["tcp"]) == 2
    assert found["tcp"] == found["shared-buffer"]


LATE = """
import asyncio, json, sys
from pathlib import Path
from slime_core.catalog import Catalog
from slime_core.config import parse_config, read_run_file, resolve
from slime_core.roles import GenerateRequest, SamplingParams
from slime_core.run import RunFolder, Session
from slime_local import engine

started = []

class Noted(engine.LocalEngine):
    async def start(self):
        started.append(self)
        await super().start()

engine.LocalEngine = Noted

async def main():
    plan = resolve(parse_config(read_run_file(Path("run.toml"))), Catalog.discover())
    request = GenerateRequest([5, 6, 7], SamplingParams(6), seed=3)
    with RunFolder.open(Path("runs/late"), plan.config.to_dict()) as folder:
        async with Session(plan, folder) as session:
            await session.publish(0)
            before = await session.engine.generate(request)
            await started[0].close()
            after = await session.engine.generate(request)
            counts = session.engine.take()
            await session.publish(1)
            newest = await session.engine.generate(request)
    same = (before.tokens, before.log_probs) == (after.tokens, after.log_probs)
    versions = [each.weight_version for each in (before, after, newest)]
    print(json.dumps([same, versions, counts["perf/engine/returned"]]))

asyncio.run(main())
"""


def test_an_engine_that_comes_late_is_sent_the_weights_again(project: Project, site: Site) -> None:
    project.write_run(save="runs/late", transport={"use": "tcp"})
    assert json.loads(site.run(project.root, "-c", LATE).splitlines()[-1]) == [True, [0, 0, 1], 1.0]


@pytest.fixture
def contract(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[TransportContract]]:
    monkeypatch.syspath_prepend(site.folder)

    class Tcp(TransportContract):
        choice = "slime-transport-tcp/tcp"

    yield Tcp
    sys.modules.pop("slime_transport_tcp", None)


def test_it_keeps_the_contract(contract: type[TransportContract]) -> None:
    results = contract.report()
    assert {result.status for result in results} == {CheckStatus.PASSED}, results
