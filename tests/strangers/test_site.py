"""An engine with extras, a trainer whose ranks share a replica and a transport, none of which is known here: their
contracts, and real runs with them.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from slime_core.sample import Json
from slime_core.telemetry import MetricsLog
from slime_testing import CheckStatus
from slime_testing.tensors.transport import TransportContract
from slime_view.samples.shard import Shard
from tests.strangers.conftest import HERE, Site

Project = Any
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


def metrics(run: Path) -> list[dict[str, float]]:
    return [dict(row.metrics) for row in MetricsLog.read(run / "metrics.jsonl")]


@pytest.mark.long
def test_the_trainer_keeps_its_contract(site: Site, tmp_path: Path) -> None:
    shown = site.pytest(HERE / "halves/tests/test_halves.py", tmp_path)
    assert " passed" in shown
    assert "skipped" not in shown, "no check of several ranks is skipped"


def test_the_transport_keeps_its_contract(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(site.folder)

    class Tcp(TransportContract):
        choice = "slime-transport-tcp/tcp"

    results = Tcp.report()
    assert {result.status for result in results} == {CheckStatus.PASSED}, results


def test_a_run_trains_on_two_shares_of_two_ranks_and_has_what_only_the_engine_knew(
    site: Site, project: Project
) -> None:
    halves: Json = {"use": "halves", "halves": {"replicas": 2, "pieces": 2}}
    chosen = {"engine": {"use": "naive"}, "trainer": halves, "correction": {"use": "tis"}}
    project.write_run(rollout_top_p=0.9, rollout_num_engines=2, num_steps_per_rollout=2, lr=1e-2, **chosen)
    site.run(project.root, "-m", "slime_core", "train", "run.toml", "--no-progress")

    rows = metrics(project.run)
    assert len(rows) == 2
    for row in rows:
        assert row["train/top_p_kept"] > 1.0
        assert row["train/grad_norm"] > 0.0
        assert row["train/ppo_kl"] != 0.0  # the second step's ratio is to the policy before the rollout
        assert row["train/tis_abs"] < 1e-4  # what the engine was sent is what the pieces make together
    logs = sorted(path.name for path in (project.run / "logs").glob("trainer-*.log"))
    assert logs == [f"trainer-{rank}.log" for rank in range(4)]
    first = Shard(project.run / "samples" / "rollout_000000.parquet").groups().kept
    for sample in (sample for group in first for sample in group.samples):
        assert sample.prefix_cache_info.total_prompt_tokens == sample.prompt_length


def test_a_training_is_the_same_to_the_bit_with_any_transport(project: Project, site: Site) -> None:
    found = {}
    for name in ("shared-buffer", "tcp"):
        engine: Json = {"local": {"workers": 1}}
        project.write_run(save=f"runs/{name}", engine=engine, rollout_num_engines=2, transport={"use": name})
        site.run(project.root, "-m", "slime_core", "train", "run.toml", "--no-progress")
        rows = metrics(project.root / "runs" / name)
        found[name] = [{k: v for k, v in row.items() if not k.startswith(("perf/", "plugin/"))} for row in rows]
    assert len(found["tcp"]) == 2
    assert found["tcp"] == found["shared-buffer"]


def test_an_engine_that_comes_late_is_sent_the_weights_again(project: Project, site: Site) -> None:
    project.write_run(save="runs/late", transport={"use": "tcp"})
    assert json.loads(site.run(project.root, "-c", LATE).splitlines()[-1]) == [True, [0, 0, 1], 1.0]
