"""Models beside the policy: they are served by engines of their own, and rewards ask them."""

import shutil

import pytest
from safetensors.numpy import load_file, save_file

from slime_core.sample import Json
from tests.conftest import Project, Slime
from tests.run.reading import metrics, samples

JUDGE: Json = {
    "model": "examiner",
    "prompt": "Task {prompt} Response {response} Label {label}",
    "verdict": "()",  # whatever it says
    "scores": {"": 0.75},
    "max_new_tokens": 4,
}


def test_a_run_serves_a_judge_and_trains_on_what_it_says(project: Project, slime: Slime) -> None:
    models: Json = {"examiner": {"hf_checkpoint": str(project.model), "engines": 2, "settings": {"workers": 1}}}
    project.write_run(served_models=models, reward={"use": "served_judge", "served_judge": JUDGE})
    slime.ok("train", "run.toml", "--no-progress")
    assert [row["rollout/raw_reward"] for row in metrics(project.run)] == [0.75, 0.75]
    assert list((project.run / "logs").glob("model-examiner-1*"))
    assert {sample["reward"] for sample in samples(project.run)} == {0.75}


def test_a_served_teacher_teaches_what_one_in_the_trainer_does(project: Project, slime: Slime) -> None:
    teacher = project.root / "teacher"
    shutil.copytree(project.model, teacher)
    weights = load_file(teacher / "model.safetensors")
    save_file({name: 1.25 * each for name, each in weights.items()}, teacher / "model.safetensors", {"format": "pt"})
    ways: dict[str, dict[str, Json]] = {
        "held": {"opd_teacher_load": str(teacher)},
        "served": {"opd_teacher_model": "big", "served_models": {"big": {"hf_checkpoint": str(teacher)}}},
    }
    found = {}
    for name, way in ways.items():
        project.write_run(use_opd=True, rollout_temperature=0.8, save=name, **way)
        slime.ok("train", "run.toml", "--no-progress")
        found[name] = [row["train/opd_reverse_kl"] for row in metrics(project.root / name)]
    assert len(found["held"]) == 2
    assert all(abs(each) > 1e-3 for each in found["held"])
    assert found["served"] == pytest.approx(found["held"], abs=1e-5)
