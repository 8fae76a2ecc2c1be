"""`slime diff`: what two runs have in common, and where they part."""

from pathlib import Path

from tests.conftest import Project, Slime


def test_runs_of_one_file_are_the_same_and_others_are_named_where_they_part(project: Project, slime: Slime) -> None:
    """Five runs: one, the same again, a longer one at another rate, one of another seed, one without models."""

    def trained(name: str, *flags: str) -> Path:
        slime.ok("train", "run.toml", "--save", f"runs/{name}", "--save-keep", "3", *flags)
        folder: Path = project.root / "runs" / name
        return folder

    one = trained("one")
    ran = slime.ok("diff", one, trained("same"))
    assert [" ".join(line.split()) for line in ran.out.splitlines()] == [
        "settings the same",
        "plugins the same",
        "metrics means of the last 2 rollouts of 2 and 2; all the same",
        "weights the same in 2 checkpoints, the last of them rollout_000002",
        "prompts 8 in both, 0 with another mean reward",
    ]

    other = trained("longer", "--lr", "3e-3", "--num-rollout", "3", "--save-interval", "2")
    found = slime("diff", one, other, "--json").json()
    assert found["settings"] == {"num_rollout": [2, 3], "lr": [1e-3, 3e-3], "save_interval": [10, 2]}
    assert found["rollouts"] == [2, 3]
    # The same samples, and the same gradient of them; the weights part after the first step.
    assert found["same_until"] == 0
    assert found["metrics"]["train/lr-pg_0"] == [1e-3, 3e-3]
    assert found["weights"] == [{"rollout_id": 0, "same": True}, {"rollout_id": 2, "same": False}]
    shown = slime("diff", one, other).out
    assert "weights    they differ in rollout_000002; the same in rollout_000000" in shown
    assert "lr  0.001 -> 0.003" in shown
    assert "perf/" not in shown
    assert "perf/step_time" in slime("diff", one, other, "--all").out

    other = trained("seed", "--seed", "7")
    prompts = slime("diff", one, other, "--json").json()["prompts"]
    gains = [abs(right - left) for left, right in (each["rewards"] for each in prompts)]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 0
    lines = slime("diff", one, other, "--prompts", "2").out.splitlines()
    listed = lines[next(place for place, line in enumerate(lines) if line.startswith("prompts")) + 1 :]
    assert [line.split()[0] for line in listed] == [each["group"] for each in prompts[:2]]

    other = trained("no-model", "--no-checkpoint-hf")
    assert "weights    the runs have no checkpoint of the same rollout" in slime("diff", one, other).out
    assert "run" in slime.refused("diff", project.root, project.root)
