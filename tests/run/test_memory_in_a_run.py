"""A run with `colocate`: engine and ranks give memory up and take it back, and every sample and weight is the same."""

from slime_core.telemetry import MetricsLog
from tests.conftest import Project, Slime


def test_a_colocated_run_is_the_same_in_every_bit(project: Project, slime: Slime) -> None:
    flags = ["--reward", "./rewards.py:digits", "--save-interval", 1]
    kept = {}
    for name, more in (("apart", []), ("together", ["--colocate"])):
        slime.ok("train", "run.toml", "--save", project.root / "runs" / name, *flags, *more)
        run = project.root / "runs" / name
        rows = MetricsLog.read(run / "metrics.jsonl")
        metrics = [{key: value for key, value in row.metrics.items() if not key.startswith("perf/")} for row in rows]
        weights = (run / "checkpoints" / "rollout_000002" / "hf" / "model.safetensors").read_bytes()
        kept[name] = ([{k: v for k, v in each.items() if not k.startswith("plugin/")} for each in metrics], weights)
    assert kept["apart"] == kept["together"]
