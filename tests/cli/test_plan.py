"""`slime plan`: what a run would use, before anything starts."""

from tests.conftest import Project, Slime


def test_json_names_plugin_version_place_and_settings_of_every_choice(project: Project, slime: Slime) -> None:
    ran = slime.ok(
        "plan", "run.toml", "--reward", "math=0.25", "--reward", "./rewards.py:digits", "--eps-clip", "0.3", "--json"
    )
    described = ran.json()
    math, digits = (row for row in described["choices"] if row["role"] == "reward")
    assert (math["plugin"], math["version"], math["weight"]) == ("slime-reward-math", "0.1.0", 0.25)
    assert digits["choice"] == "./rewards.py:digits"
    assert digits["origin"] == f"{project.root / 'rewards.py'}:5"
    assert digits["isolation"] == "loop, unprotected"
    (loss,) = (row for row in described["choices"] if row["role"] == "loss")
    assert loss["settings"]["eps_clip"] == 0.3
    assert described["keys"]["rollout_batch_size"] == 4
    assert described["groups"] == [
        {"group": "trainer", "workers": 1, "cpus": 1.0, "gpus": 0.0, "memory": None, "custom": {}},
        {"group": "engine", "workers": 1, "cpus": 1.0, "gpus": 0.0, "memory": None, "custom": {}},
    ]
    assert described["transport"] == "shared-buffer"
    assert described["architecture"] == "Qwen3ForCausalLM"
    assert described["unused"] == []


def test_what_the_groups_of_workers_need_is_summed(project: Project, slime: Slime) -> None:
    ran = slime.ok("plan", "run.toml", "--rollout-num-engines", "3")
    lines = [" ".join(line.split()) for line in ran.out.splitlines() if " needs " in line]
    assert lines == ["trainer needs 1 process: 1 core", "engine needs 3 processes: 3 cores"]
    plan = slime("plan", "run.toml", "--debug-rollout-only", "true")
    assert "trainer needs" not in plan.out


def test_what_was_given_is_shown_as_a_run_file(project: Project, slime: Slime) -> None:
    few = {"path": "prompts.jsonl@[0:2]", "temperature": 0.0}
    project.write_run(eval_interval=1, eval_prompt_data={"few": few})
    shown = slime.ok("plan", "run.toml", "--eps-clip", "0.3", "--no-data").out
    assert 'eval_prompt_data = {few = {path = "prompts.jsonl@[0:2]", temperature = 0.0}}' in shown
    assert "[loss.policy_loss]\neps_clip = 0.3\n" in shown


def test_sections_that_nothing_chooses_are_listed(project: Project, slime: Slime) -> None:
    project.write_run(loss={"use": "sft_loss", "policy_loss": {"eps_clip": 0.1}})
    ran = slime("plan", "run.toml")
    assert "[loss.policy_loss]: nothing chooses 'policy_loss'" in ran.out
    assert slime("plan", "run.toml", "--json").json()["unused"] == ["loss.policy_loss"]
