"""The checkpoint that is best by an evaluation stays, with a link that points to it."""

from slime_core.run import list_checkpoints, verify
from slime_core.telemetry import MetricsLog
from tests.conftest import Project, Slime


def rewards(project: Project) -> list[tuple[float, int]]:
    rows = MetricsLog.read(project.run / "metrics.jsonl")
    return [(row.metrics["eval/held"], row.rollout_id) for row in rows if "eval/held" in row.metrics]


def test_a_run_keeps_its_best_checkpoint_through_a_resume(project: Project, slime: Slime) -> None:
    project.write_run(eval_prompt_data={"held": "prompts.jsonl"}, eval_interval=1, lr=1e-3, save_best="held")
    flags = ("--save-keep", 1, "--no-progress")
    link = project.run / "best"
    for rollouts, command in ((1, ("train", "run.toml")), (2, ("resume", project.run))):
        ran = slime.ok(*command, "--num-rollout", rollouts, *flags)
        reward, rollout_id = max(rewards(project), key=lambda each: (each[0], -each[1]))
        assert link.resolve() == project.run / "checkpoints" / f"rollout_{rollout_id:06d}"
        assert verify(link.resolve()).rollout_id == rollout_id
        assert {int(path.name[-6:]) for path in list_checkpoints(project.run / "checkpoints")} == {rollout_id, rollouts}
        if command[0] == "train":
            assert f"best so far: eval/held {reward:.3f} after {rollout_id} rollouts" in ran.out
            link.unlink()  # as if a kill had come between the checkpoint and its link
    assert slime("plan", "run.toml", "--hf-checkpoint", link / "hf", "--save", "other").code == 0
