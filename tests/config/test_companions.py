"""Keys of the models beside the policy: what has no effect, or cannot be had, is refused before anything starts."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from slime_core.catalog import Catalog
from slime_core.config import ChosenRoles, Plan, parse_config, reference_of, resolve, teacher_of
from slime_core.config.companions import check_companions
from slime_core.errors import ConfigError, ModelError
from slime_core.roles import TrainerSpec
from slime_core.sample import Json

LEAST: Mapping[str, Json] = {
    "save": "s",
    "num_rollout": 3,
    "prompt_data": "p.jsonl",
    "rollout_max_response_len": 8,
    "reward": {"use": "math"},
}


def plan_of(model: Path, **changes: Json) -> Plan:
    return resolve(parse_config({**LEAST, "hf_checkpoint": str(model), **changes}), Catalog.discover())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kl_loss_coef": 0.1}, "kl_loss_coef has no effect here: set use_kl_loss = true"),
        ({"use_unbiased_kl": True, "kl_coef": 0.1}, "use_unbiased_kl has no effect here: set use_kl_loss = true"),
        ({"kl_loss_type": "k2"}, "kl_loss_type has no effect here: set use_kl_loss = true or kl_coef above 0"),
        ({"ref_load": "other"}, "ref_load has no effect here: set use_kl_loss = true or kl_coef above 0"),
        ({"ref_update_interval": 3}, "ref_update_interval has no effect here"),
        ({"opd_kl_coef": 0.5}, "opd_kl_coef has no effect here: set use_opd = true"),
        ({"opd_teacher_load": "other"}, "opd_teacher_load has no effect here: set use_opd = true"),
        ({"use_kl_loss": True, "kl_loss_coef": 0.1, "kl_coef": 0.1}, "give one"),
        ({"use_kl_loss": True, "kl_loss_type": "k4"}, "kl_loss_type = 'k4'"),
        ({"use_kl_loss": True, "kl_loss_type": "k3+"}, "set use_kl_loss = true and kl_loss_coef above 0"),
        (
            {"kl_coef": 0.1, "kl_loss_type": "k1+", "advantage_estimator": "reinforce_plus_plus"},
            'kl_loss_type = "k1+" is "k1" with another gradient',
        ),
        ({"kl_coef": 0.1}, "kl_coef has no effect here: advantage 'grpo' has one reward a sample"),
        (
            {"kl_coef": 0.1, "advantage_estimator": "reinforce_plus_plus", "loss_type": "sft_loss"},
            "kl_coef has no effect here: loss 'sft_loss' does not look at advantages",
        ),
        ({"critic_lr": 0.1}, "critic_lr has no effect here: advantage 'grpo' has no critic; use ppo"),
        ({"lambd": 0.9}, "lambd has no effect here: it is a setting of advantage 'ppo'"),
        (
            {"advantage_estimator": "ppo", "value_clip": 0.1},
            "value_clip has no effect here: the one step of a rollout begins where its values were found",
        ),
        (
            {"advantage_estimator": "ppo", "num_critic_only_steps": 3},
            "num_critic_only_steps = 3 leaves none of num_rollout = 3 rollouts to train the policy in",
        ),
        (
            {"advantage_estimator": "ppo", "critic_lr": 1e-6, "lr_decay_style": "linear", "min_lr": 1e-5, "lr": 1e-3},
            "min_lr = 1e-05 is above critic_lr = 1e-06",
        ),
        (
            {"advantage_estimator": "ppo", "loss_type": "sft_loss"},
            "advantage 'ppo' has no effect here: loss 'sft_loss'",
        ),
        ({"use_opd": True, "loss_type": "sft_loss"}, "use_opd has no effect here: loss 'sft_loss'"),
    ],
)
def test_what_would_change_nothing_is_refused(tiny_model: Path, changes: dict[str, Json], said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        plan_of(tiny_model, **changes)
    assert said in str(raised.value)


def test_the_reference_is_the_runs_own_model_unless_it_is_said(tiny_model: Path, tmp_path: Path) -> None:
    assert reference_of(plan_of(tiny_model).config) is None
    assert teacher_of(plan_of(tiny_model).config) is None
    found = reference_of(plan_of(tiny_model, use_kl_loss=True, kl_loss_coef=0.1, kl_loss_type="low_var_kl").config)
    assert found is not None
    assert (found.load, found.kl_loss_coef, found.kl_loss_type) == (tiny_model, 0.1, "low_var_kl")
    other = shutil.copytree(tiny_model, tmp_path / "other")
    keys = {"advantage_estimator": "reinforce_plus_plus", "kl_coef": 0.1, "ref_load": str(other)}
    found = reference_of(plan_of(tiny_model, **keys).config)  # type: ignore[arg-type]
    assert found is not None
    assert (found.load, found.use_kl_loss) == (other, False)


def edited(model: Path, to: Path, **changes: Json) -> str:
    """A copy of a model directory with other numbers in its config.json."""
    shutil.copytree(model, to)
    config = json.loads((to / "config.json").read_text())
    (to / "config.json").write_text(json.dumps({**config, **changes}))
    return str(to)


def test_companions_must_be_models_that_fit(tiny_model: Path, tmp_path: Path) -> None:
    kl: dict[str, Json] = {"use_kl_loss": True, "kl_loss_coef": 0.1}
    with pytest.raises(ModelError, match="no model directory /nowhere: ref_load must be"):
        plan_of(tiny_model, **kl, ref_load="/nowhere")
    vocabulary = edited(tiny_model, tmp_path / "vocabulary", vocab_size=7)
    with pytest.raises(ModelError, match="its vocab_size is 7"):
        plan_of(tiny_model, **kl, ref_load=vocabulary)
    with pytest.raises(ModelError, match=r"opd_teacher_load = .* its vocab_size is 7"):
        plan_of(tiny_model, use_opd=True, opd_teacher_load=vocabulary)
    deeper = edited(tiny_model, tmp_path / "deeper", num_hidden_layers=9)
    plan_of(tiny_model, **kl, ref_load=deeper)
    with pytest.raises(ModelError, match="its num_hidden_layers is 9"):
        plan_of(tiny_model, **kl, ref_load=deeper, ref_update_interval=4)


def test_a_trainer_that_holds_no_such_model_is_refused(tiny_model: Path) -> None:
    plan = plan_of(tiny_model, use_kl_loss=True)
    check_companions(plan.config, plan.roles, plan.catalog)
    trainer = plan.roles.one(TrainerSpec)
    registered = replace(trainer.registered, spec=replace(trainer.spec, companions=frozenset()))
    roles = ChosenRoles({**plan.roles, "trainer": (replace(trainer, registered=registered),)})
    with pytest.raises(ConfigError, match="trainer 'local' holds no reference model: use_kl_loss or kl_coef needs"):
        check_companions(plan.config, roles, plan.catalog)
