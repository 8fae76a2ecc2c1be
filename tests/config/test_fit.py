"""Choices and keys that do not fit each other are refused by the plan, before anything starts; others are taken."""

import json
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from slime_core.catalog import Catalog
from slime_core.config import (
    ChosenRoles,
    Plan,
    ResolvedChoice,
    parse_config,
    reference_of,
    resolve,
    teacher_of,
    write_toml,
)
from slime_core.config.fit import wanted_extras
from slime_core.errors import SlimeError
from slime_core.roles import (
    SELECTABLE,
    CorrectionSpec,
    EngineSpec,
    Extra,
    GeneratorSpec,
    PluginSet,
    RewardSpec,
    SampleField,
    TrainerSpec,
    TransportSpec,
)
from slime_core.sample import Json
from tests.tables import table

PLUGIN = """
from slime_core import hookimpl
from slime_core.errors import ConfigError
from slime_core.roles import (
    AdvantageSpec, BatchTransformSpec, EngineSpec, Extra, GeneratorSpec, Grain, MemoryTag, TrainerSpec, TransportSpec
)

SLIME_API = "1"


def refuse(settings, model):
    raise ConfigError("no heads for " + model["model_type"])


@hookimpl
def slime_engines():
    yield EngineSpec("waiting", print, transports=("meeting",))
    yield EngineSpec("shrinking", print, transports=("disk",), releases=frozenset({MemoryTag.WEIGHTS}))
    yield EngineSpec("telling", print, gives=frozenset({Extra.ROUTED_EXPERTS}))
    yield EngineSpec("served", print, transports=("ipc", "disk"), releases=frozenset({MemoryTag.KV_CACHE}))


@hookimpl
def slime_trainers():
    yield TrainerSpec("simple", print)
    yield TrainerSpec("choosy", print, transports=("ipc", "shared-buffer"))
    yield TrainerSpec("sharded", print, releases=frozenset({MemoryTag.OPTIMIZER}))
    yield TrainerSpec("picky", print, check_model=refuse)
    yield TrainerSpec("faulty", print, check_model=lambda settings, model: model["heads"])


@hookimpl
def slime_transports():
    yield TransportSpec("meeting", print, rendezvous=True)


@hookimpl
def slime_generators():
    yield GeneratorSpec("describing", print)
    yield GeneratorSpec("speaks", print, renders_prompts=True)


@hookimpl
def slime_batch_transforms():
    yield BatchTransformSpec("turns", lambda settings, setup: print, columns={"turn": Grain.TOKEN})
    yield BatchTransformSpec("turns_again", lambda settings, setup: print, columns={"turn": Grain.TOKEN})


@hookimpl
def slime_advantages():
    yield AdvantageSpec("by_turn", lambda settings, setup: None, token_columns=("turn",))
    yield AdvantageSpec("by_hour", lambda settings, setup: None, token_columns=("hour",))
"""
PlanOf = Callable[..., Plan]
TIS: Json = {"use": "tis"}
OLD: dict[str, Json] = {"keep_old_actor": True, "correction": TIS}
PPO: dict[str, Json] = {"advantage_estimator": "ppo"}
KL: dict[str, Json] = {"use_kl_loss": True, "kl_loss_coef": 0.1}
ONE: dict[str, Json] = {"n_samples_per_prompt": 1}
SHARE: dict[str, Json] = {"trainer": {"use": "sharded"}, "engine": {"use": "served"}}
IMAGES: Json = {"image": "images"}
SETS: dict[str, Json] = {"eval_interval": 1}
BIG: dict[str, Json] = {
    "served_models": {"big": {"hf_checkpoint": "MODEL"}},
    "use_opd": True,
    "opd_teacher_model": "big",
}
CUT: dict[str, Json] = {"rollout_top_p": 0.9}
RPP: dict[str, Json] = {"advantage_estimator": "reinforce_plus_plus"}
NODES: dict[str, Json] = {"actor_num_nodes": 2, "actor_num_gpus_per_node": 1}
PRIORITY: dict[str, Json] = {"buffer": {"use": "priority", "priority": {"max_staleness": 0}}}
EVERY_3: dict[str, Json] = {"update_weights_interval": 3}
SFT: dict[str, Json] = {"reward": None, "rollout_max_response_len": None, "loss": {"use": "sft_loss"}}
JUDGED: dict[str, Json] = {"reward": {"use": "served_judge"}}
TURNS: Json = {"use": ["turns"]}
SPEAKS: Json = {"use": "speaks"}


def served(**keys: Json) -> dict[str, Json]:
    """A served model with these keys."""
    return {**BIG, "served_models": {"big": {"hf_checkpoint": "MODEL", **keys}}}


def one_set(**keys: Json) -> dict[str, Json]:
    """The keys of an evaluation set, and when it is evaluated."""
    return {**SETS, "eval_prompt_data": {"a": {"path": "p", **keys}}}


@pytest.fixture(scope="module")
def plan_of(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> PlanOf:
    root = tmp_path_factory.mktemp("fit")
    (root / "of_fit.py").write_text(PLUGIN)
    catalog = Catalog.discover(PluginSet(modules=("./of_fit.py",), root=root))
    least: dict[str, Json] = {
        "hf_checkpoint": str(tiny_model),
        "save": str(root / "run"),
        "num_rollout": 3,
        "prompt_data": "p.jsonl",
        "rollout_max_response_len": 8,
        "reward": {"use": "math"},
    }

    def plan(**changes: Json) -> Plan:
        given = json.dumps({key: value for key, value in {**least, **changes}.items() if value is not None})
        return resolve(parse_config(json.loads(given.replace("MODEL", str(tiny_model))), catalog), catalog)

    return plan


@table(
    "changes, message",
    [
        # bf16
        ({"bf16": True, "engine": {"use": "served"}}, "bf16 has no effect on engine 'served': leave it out, or choose"),
        ({"bf16": True, "trainer": {"use": "simple"}}, "bf16 has no effect on trainer 'simple'"),
        ({"bf16": "fp16"}, "bf16 = 'fp16'"),
        # models beside the policy
        ({"kl_loss_coef": 0.1}, "kl_loss_coef has no effect here: set use_kl_loss = true"),
        ({"use_unbiased_kl": True, "kl_coef": 0.1}, "use_unbiased_kl has no effect here: set use_kl_loss = true"),
        ({"kl_loss_type": "k2"}, "kl_loss_type has no effect here: set use_kl_loss = true or kl_coef above 0"),
        ({"ref_load": "other"}, "ref_load has no effect here: set use_kl_loss = true or kl_coef above 0"),
        ({"ref_update_interval": 3}, "ref_update_interval has no effect here"),
        ({"opd_kl_coef": 0.5}, "opd_kl_coef has no effect here: set use_opd = true"),
        ({"opd_teacher_load": "other"}, "opd_teacher_load has no effect here: set use_opd = true"),
        ({**KL, "kl_coef": 0.1}, "give one"),
        ({"use_kl_loss": True, "kl_loss_type": "k4"}, "kl_loss_type = 'k4'"),
        ({"use_kl_loss": True, "kl_loss_type": "k3+"}, "set use_kl_loss = true and kl_loss_coef above 0"),
        ({"kl_coef": 0.1, "kl_loss_type": "k1+", **RPP}, 'kl_loss_type = "k1+" is "k1" without kl_loss_coef'),
        ({"kl_coef": 0.1}, "kl_coef has no effect here: advantage 'grpo' has one reward per sample"),
        ({"kl_coef": 0.1, **RPP, "loss_type": "sft_loss"}, "kl_coef has no effect here: loss 'sft_loss' does not"),
        ({"critic_lr": 0.1}, "critic_lr has no effect here: advantage 'grpo' has no critic; use ppo"),
        ({"lambd": 0.9}, "lambd has no effect here: it is a setting of advantage 'ppo'"),
        ({**PPO, "value_clip": 0.1}, "value_clip has no effect here: with one step per rollout, values have not moved"),
        ({**PPO, "num_critic_only_steps": 3}, "num_critic_only_steps = 3 leaves none of num_rollout = 3 rollouts"),
        ({**PPO, "critic_lr": 1e-6, "lr_decay_style": "linear", "min_lr": 1e-5, "lr": 1}, "above critic_lr = 1e-06"),
        ({**PPO, "loss_type": "sft_loss"}, "advantage 'ppo' has no effect here: loss 'sft_loss'"),
        ({"use_opd": True, "loss_type": "sft_loss"}, "use_opd has no effect here: loss 'sft_loss'"),
        ({**KL, "ref_load": "/nowhere"}, "no model directory /nowhere: ref_load must be"),
        ({"hf_checkpoint": "models/none"}, "must be a local directory in HF format; relative paths start at /"),
        ({**BIG, "use_opd": False}, "opd_teacher_model has no effect here: set use_opd = true"),
        ({**BIG, "opd_teacher_load": "m"}, "opd_teacher_load and opd_teacher_model both name a teacher"),
        ({**BIG, "opd_teacher_model": "bigg"}, "this run serves no such model. Did you mean 'big'? Models: big"),
        ({**BIG, "served_models": {}}, "this run serves no such model. Models: none; add one by [served_models.big]"),
        # samples of another distribution
        (CUT, "rollout_top_p: gradients are biased, as trainer 'local' takes log-probs among all tokens"),
        ({"rollout_top_k": 20}, "rollout_top_k: gradients are biased"),
        ({"rollout_min_p": 0.1}, "rollout_min_p: gradients are biased"),
        ({"accept_biased_sampling": True}, "accept_biased_sampling has no effect here"),
        # what an estimator reads
        ({**ONE}, "n_samples_per_prompt = 1: advantage 'grpo' compares the samples of a prompt"),
        ({**ONE, "advantage": {"use": "rloo"}}, "advantage 'rloo' compares the samples of a prompt: give 2"),
        ({"advantage": {"use": "by_turn"}}, "reads a column 'turn' that no batch transform of this run makes: write "),
        ({"advantage": {"use": "by_turn"}}, '[batch_transform] use = ["turns"]'),
        ({"advantage": {"use": "by_hour"}, "batch_transform": TURNS}, '[batch_transform] use = ["turns", "…"]'),
        ({"batch_transform": {"use": ["turns", "turns_again"]}}, "'turns' and 'turns_again' both make the column"),
        ({"reward": {"use": "environment"}}, "generator 'single_turn' gives no reward 'environment': choose a reward"),
        # media and chat templates
        ({"multimodal_keys": IMAGES}, "multimodal_keys: prompts with image cannot be used here: generator 'single_tu"),
        (one_set(multimodal_keys=IMAGES), "eval_prompt_data.a.multimodal_keys: prompts with image cannot be used"),
        (
            {**one_set(generator="single_turn"), "generator": {"use": "describing"}, "multimodal_keys": IMAGES},
            "eval_prompt_data.a.multimodal_keys",
        ),
        ({"generator": SPEAKS, "apply_chat_template": True}, "apply_chat_template = true: generator 'speaks'"),
        ({"generator": SPEAKS, **one_set(apply_chat_template=True)}, "eval_prompt_data.a.apply_chat_template = true"),
        # evaluation sets
        (one_set(topp=1), "unknown setting eval_prompt_data.a.topp"),
        ({**SETS, "eval_prompt_data": {"a": {}}}, "eval_prompt_data.a.path is required: set it in the run file"),
        (one_set(top_p=2), "eval_prompt_data.a.top_p = 2: input should"),
        ({**SETS, "eval_prompt_data": {"a": 3}}, "eval_prompt_data.a = 3: input should be a valid dictionary"),
        (one_set(reward="mth"), "eval_prompt_data.a.reward: no reward"),
        # older weights
        ({"keep_old_actor": True, "rollout_policy": "async"}, "without a correction, ratios use the engine's"),
        ({**OLD}, "training begins with the weights that generated"),
        ({**OLD, "rollout_policy": "continuous"}, "here a rollout's tokens are of several: leave it out"),
        (
            {**OLD, "rollout_policy": "async", "trainer": {"use": "simple"}},
            "'simple' cannot hold the old policy's model",
        ),
        (
            {**EVERY_3, "rollout_policy": "continuous"},
            "lets weights fall 2 versions behind, and max_staleness = 1",
        ),
        ({**EVERY_3, "debug_rollout_only": True}, "has no effect here: only one of engine and trainer is started"),
        ({**EVERY_3, "engine": {"use": "waiting"}}, "with transport 'meeting' a replaced engine"),
        (
            {**EVERY_3, "engine": {"use": "shrinking"}, "offload_rollout": True},
            "'shrinking' releases its weights while the",
        ),
        # when rollouts are generated, and how old their weights may be
        ({"max_staleness": 2}, "max_staleness has no effect here: set rollout_policy"),
        ({"partial_rollout": True}, "give an over_sampling_batch_size above rollout_batch_size = "),
        ({"partial_rollout": True, "rollout_policy": "async"}, "never changes weights during a rollout"),
        ({"mask_offpolicy_in_partial_rollout": True}, "set partial_rollout = true"),
        (
            {"partial_rollout": True, "rollout_batch_size": 4, "over_sampling_batch_size": 9},
            "over_sampling_batch_size = 9 has no effect here: with max_staleness = 1 at most 8 groups",
        ),
        ({"rollout_policy": "continous"}, "continuous"),
        ({**PRIORITY, "rollout_policy": "async"}, "groups more than 0 weight versions old, and with rollout_po"),
        ({**PRIORITY, "rollout_policy": "continuous", "max_staleness": 2}, "allow 2 in [buffer.priority], or change"),
        ({**PRIORITY, "update_weights_interval": 3}, "allow 2 in [buffer.priority], or change up"),
        # finetuning
        ({**SFT, "group_filter": {"use": "nonzero_std"}}, "group_filter has no effect here"),
        # served models
        (served(engine="locale"), "served_models.big.engine: no engine 'locale'. Did you mean 'local'?"),
        (served(hf_checkpoint="/nowhere"), "served_models.big.hf_checkpoint"),
        (served(settings={"worker": 1}), "served_models.big: unknown setting engine.local.worker. Did you mean 'work"),
        (served(engines=0), "served_models.big.engines = 0"),
        (served(model="x"), "unknown setting served_models.big.model."),
        (JUDGED, "reward 'served_judge' asks the model 'judge', which this run does not serve. Models: none; add one"),
        ({**JUDGED, "served_models": {"judges": {"hf_checkpoint": "MODEL"}}}, "Did you mean 'judges'?"),
        # room of a sample
        ({"rollout_max_context_len": 100_000}, "rollout_max_context_len = 100000: the model in"),
        ({"rollout_max_context_len": 8}, "rollout_max_response_len = 8: the context has 8 tokens"),
        (one_set(max_response_len=256), "eval_prompt_data.a.max_response_len = 256: the model in"),
        # the best checkpoint
        ({**one_set(), "save_best": "b"}, "save_best = 'b' names no evaluation set. eval_prompt_data has: a"),
        ({**one_set(), "save_best": "a", "debug_rollout_only": True}, "save_best has no effect here: with debug_roll"),
        # the trainer
        ({"reset_optimizer_states": True, "trainer": {"use": "simple"}}, "has no effect on trainer 'simple'"),
        ({"balance_by_flops": True, "trainer": {"use": "simple"}}, "balance_by_flops has no effect here: trainer"),
        ({"checkpoint_hf": False, "trainer": {"use": "choosy"}}, "checkpoint_hf = false: trainer 'choosy' continues"),
        ({"trainer": {"use": "picky"}}, "no heads for qwen3"),
        ({"trainer": {"use": "faulty"}}, "check_model of trainer 'faulty'"),
        # copies and data for a look
        ({"save_hf": "m/{rollout}"}, "save_hf = 'm/{rollout}': braces may hold a name alone, {rollout_id}"),
        ({"save_hf": "m/{rollout_id"}, "save_hf = 'm/{rollout_id'"),
        ({"save_hf": "m/{rollout_id:06d}"}, "braces may hold a name alone, {rollout_id}"),
        ({"save_hf": "m", "checkpoint_hf": False}, "the model is linked from the checkpoint's"),
        ({"save_hf": "m", "debug_rollout_only": True}, "the model stays as it is"),
        ({"save_debug_train_data": "d/{step}"}, "a name alone, {rollout_id} and {rank}"),
        ({"save_debug_train_data": "d", "trainer": {"local": {"ranks": 2}}}, "2 ranks of trainer 'local' would write"),
        ({"save_debug_train_data": "d", "trainer": {"use": "simple"}}, "has no effect on trainer 'simple'"),
        ({"save_debug_train_data": "d", "debug_rollout_only": True}, "debug_rollout_only starts no trainer"),
        ({"load_debug_rollout_data_subsample": 0.5}, "has no effect here: give load_debug_rollout_data"),
        ({"load_debug_rollout_data_subsample": 0.0}, "load_debug_rollout_data_subsample = 0.0"),
        # transports
        ({"engine": {"use": "served"}, "trainer": {"use": "choosy"}}, "trainer 'choosy'"),
        ({"engine": {"use": "served"}, "transport": {"use": "shared-buffer"}}, "[transport] use = 'slime-train/disk'"),
        ({"transport": {"use": "dsk"}}, "Did you mean 'disk'"),
        (
            {**NODES, "transport": {"use": "shared-buffer"}},
            "'shared-buffer' is for one machine, and actor_num_nodes = 2",
        ),
        # engine and trainer take turns
        ({**SHARE, "colocate": True, "rollout_policy": "async"}, 'colocate = true: with rollout_policy = "async"'),
        ({**SHARE, "colocate": True, "rollout_policy": "continuous"}, 'set rollout_policy = "sync"'),
        ({**SHARE, "offload_train": True, "rollout_policy": "async"}, "offload_train = true: with rollout_policy"),
        ({"colocate": True, "engine": {"use": "waiting"}}, "engine 'waiting' cannot release memory; set offload_roll"),
        ({"offload_train": True, "trainer": {"use": "simple"}}, "trainer 'simple' cannot release memory"),
        ({**SHARE, "colocate": True, "debug_rollout_only": True}, "colocate = true has no effect here"),
        ({**SHARE, **SFT, "offload_rollout": True}, "offload_rollout = true has no effect"),
    ],
)
def test_what_does_not_fit_is_refused(plan_of: PlanOf, changes: dict[str, Json], message: str) -> None:
    with pytest.raises(SlimeError) as raised:
        plan_of(**changes)
    assert message in str(raised.value)


@table(
    "changes",
    [
        {"bf16": True},
        BIG,
        {**CUT, "accept_biased_sampling": True},
        {**CUT, "debug_rollout_only": True},
        {"bf16": True, "trainer": {"use": "simple"}, "debug_rollout_only": True},
        {"bf16": True, "engine": {"use": "served"}, "load_debug_rollout_data": "other"},
        {**ONE, "advantage": {"use": "reinforce_plus_plus"}},
        {**ONE, "advantage": {"use": "grpo", "grpo": {"rewards_normalization": False}}},
        {**ONE, **KL},
        {**ONE, "loss": {"use": "policy_loss", "policy_loss": {"entropy_coef": 0.1}}},
        {**ONE, "debug_rollout_only": True},
        {"advantage": {"use": "by_turn"}, "batch_transform": TURNS},
        {"multimodal_keys": IMAGES, "generator": {"use": "describing"}},
        one_set(multimodal_keys=IMAGES, generator="describing"),
        {"generator": SPEAKS},
        {**OLD, "rollout_policy": "async"},
        {**OLD, **EVERY_3},
        {**EVERY_3, "rollout_policy": "continuous", "max_staleness": 2},
        {"reset_optimizer_states": True, "save_hf": "models/{rollout_id}", "save_debug_train_data": "d/{rank}"},
        {"checkpoint_hf": False},
        {"trainer": {"use": "picky"}, "debug_rollout_only": True},
    ],
)
def test_what_fits_is_taken(plan_of: PlanOf, changes: dict[str, Json]) -> None:
    plan_of(**changes)


@table(
    "keys, train, rollout",
    [
        ({}, False, False),
        ({"colocate": True}, True, True),
        ({"colocate": True, "offload_train": False}, False, True),
        ({"offload_rollout": True}, False, True),
    ],
)
def test_the_halves_follow_colocate_unless_set(
    plan_of: PlanOf, keys: dict[str, Json], train: bool, rollout: bool
) -> None:
    cluster = plan_of(**SHARE, **keys).config.cluster
    assert (cluster.offloads_train, cluster.offloads_rollout) == (train, rollout)


@table(
    "changes, name, unused",
    [
        ({}, "shared-buffer", ()),
        ({"engine": {"use": "served"}}, "disk", ()),
        ({"transport": {"use": "disk", "disk": {"folder": "nfs"}}}, "disk", ()),
        ({"engine": {"use": "served"}, "transport": {"disk": {"folder": "nfs"}}}, "disk", ()),
        ({"transport": {"disk": {"folder": "nfs"}}}, "shared-buffer", ("transport.disk",)),
        (NODES, "disk", ()),
    ],
)
def test_the_transport_is_the_run_files_or_the_engines_favourite(
    plan_of: PlanOf, changes: dict[str, Json], name: str, unused: tuple[str, ...]
) -> None:
    plan = plan_of(**changes)
    chosen = plan.roles.one(TransportSpec)
    assert (chosen.reference, plan.unused) == (name, unused)
    if "transport" in changes and not unused:
        assert str(chosen.settings.folder) == "nfs"  # type: ignore[attr-defined]


def test_a_specs_class_finds_the_choices_of_its_role(plan_of: PlanOf) -> None:
    roles = plan_of(reward={"use": {"math": 0.75, "format": 0.25}}).roles
    assert {each.reference: each.weight for each in roles.all(RewardSpec)} == {"math": 0.75, "format": 0.25}
    assert set(roles) == set(SELECTABLE)
    assert (roles.maybe(CorrectionSpec), roles.all(CorrectionSpec)) == (None, ())
    engine = roles.one(EngineSpec)
    choice = engine.to_choice()
    assert (choice.role, choice.name, choice.plugin) == ("engine", "slime-local/local", "slime-local")
    assert choice.settings is engine.settings


def test_an_evaluation_set_is_a_path_or_a_table(plan_of: PlanOf) -> None:
    tables: dict[str, Json] = {"a": "x.jsonl", "b": {"path": "y.jsonl", "reward": "math", "top_p": 0.5}}
    config = plan_of(**SETS, eval_prompt_data=tables).config
    first, second = config.evaluation.eval_prompt_data.values()
    assert (first.path, first.reward, first.top_p) == ("x.jsonl", None, None)
    assert (second.path, second.reward, second.top_p) == ("y.jsonl", "math", 0.5)
    assert config.to_dict()["eval_prompt_data"] == tables
    assert parse_config(tomllib.loads(write_toml(config.to_dict()))) == config


def test_the_reference_is_the_runs_own_model_unless_given(plan_of: PlanOf, tiny_model: Path, tmp_path: Path) -> None:
    assert (reference_of(plan_of().config), teacher_of(plan_of().config)) == (None, None)
    found = reference_of(plan_of(**KL, kl_loss_type="low_var_kl").config)
    assert found is not None
    assert (found.load, found.kl_loss_coef, found.kl_loss_type) == (tiny_model, 0.1, "low_var_kl")
    other = shutil.copytree(tiny_model, tmp_path / "other")
    keys: dict[str, Json] = {"advantage_estimator": "reinforce_plus_plus", "kl_coef": 0.1, "ref_load": str(other)}
    found = reference_of(plan_of(**keys).config)
    assert found is not None
    assert (found.load, found.use_kl_loss) == (other, False)


def test_models_beside_the_policy_must_fit_it(plan_of: PlanOf, tiny_model: Path, tmp_path: Path) -> None:
    def edited(name: str, **changes: Json) -> str:
        folder = shutil.copytree(tiny_model, tmp_path / name)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, **changes}))
        return str(folder)

    vocabulary, deeper = edited("vocabulary", vocab_size=7), edited("deeper", num_hidden_layers=9)
    for key, changes in (("ref_load", KL), ("opd_teacher_load", {"use_opd": True})):
        with pytest.raises(SlimeError, match=f"{key} = .*: its vocab_size is 7"):
            plan_of(**changes, **{key: vocabulary})
    plan_of(**KL, ref_load=deeper)
    with pytest.raises(SlimeError, match="its num_hidden_layers is 9"):
        plan_of(**KL, ref_load=deeper, ref_update_interval=4)
    judge: dict[str, Json] = {"served_models": {"judge": {"hf_checkpoint": str(tiny_model), "engine": "served"}}}
    assert plan_of(**judge).served["judge"].engines == 1
    with pytest.raises(SlimeError, match=r"served_models.judge: engine 'served' cannot compute in bf16"):
        plan_of(**judge, bf16=True)


EXPERTS = frozenset({SampleField.ROLLOUT_ROUTED_EXPERTS})
TOP_P = frozenset({SampleField.ROLLOUT_TOP_P_TOKEN_IDS, SampleField.ROLLOUT_TOP_P_TOKEN_OFFSETS})
GIVEN, EXPERT = frozenset(Extra), frozenset({Extra.ROUTED_EXPERTS})
ONLY_TOP_P, NONE = frozenset({Extra.TOP_P_TOKENS}), frozenset[Extra]()
BIASED: dict[str, Json] = {**CUT, "accept_biased_sampling": True}


def with_spec(chosen: ResolvedChoice, spec: TrainerSpec | EngineSpec | GeneratorSpec) -> ResolvedChoice:
    return replace(chosen, registered=replace(chosen.registered, spec=spec))


def wants(
    plan: Plan,
    reads: frozenset[SampleField],
    gives: frozenset[Extra] = frozenset(),
    brings: frozenset[Extra] = frozenset(),
    excluded: frozenset[Extra] = frozenset(),
) -> frozenset[Extra]:
    """Of a trainer, an engine and a generator that read, give (but for some) and bring this."""
    trainer, engine, generator = (plan.roles.one(spec) for spec in (TrainerSpec, EngineSpec, GeneratorSpec))
    chosen = {
        "trainer": (with_spec(trainer, replace(trainer.spec, reads=lambda settings: reads)),),
        "engine": (with_spec(engine, replace(engine.spec, gives=gives, excluded_extras=lambda settings: excluded)),),
        "generator": (with_spec(generator, replace(generator.spec, gives=brings)),),
    }
    return wanted_extras(plan.config, ChosenRoles({**plan.roles, **chosen}), plan.catalog)


@table(
    "changes, reads, given, expected",
    [
        ({}, EXPERTS | {SampleField.TRAIN_METADATA}, {"gives": GIVEN}, EXPERT),
        ({}, frozenset(), {"gives": GIVEN}, NONE),
        ({}, EXPERTS, {"gives": GIVEN, "excluded": ONLY_TOP_P}, EXPERT),
        ({}, EXPERTS, {"brings": EXPERT}, NONE),
        ({}, TOP_P, {"gives": ONLY_TOP_P}, NONE),
        (BIASED, TOP_P, {"gives": ONLY_TOP_P}, ONLY_TOP_P),
        ({}, TOP_P, {}, NONE),
        ({"debug_rollout_only": True}, EXPERTS, {}, NONE),
        ({"load_debug_rollout_data": "other"}, EXPERTS, {}, NONE),
        (BIASED, TOP_P, {}, "does not give top_p_tokens"),
        ({}, EXPERTS, {}, "trainer 'local' reads rollout_routed_experts of samples, and engine 'local' does not give"),
        ({}, EXPERTS, {}, "choose one that does (./of_fit.py/telling"),
        (
            {},
            EXPERTS,
            {"gives": GIVEN, "excluded": EXPERT},
            "does not give routed_experts with its settings: choose",
        ),
    ],
)
def test_what_is_read_is_wanted_where_the_engine_gives_it(
    plan_of: PlanOf,
    changes: dict[str, Json],
    reads: frozenset[SampleField],
    given: dict[str, frozenset[Extra]],
    expected: frozenset[Extra] | str,
) -> None:
    plan = plan_of(**changes)
    if isinstance(expected, str):
        with pytest.raises(SlimeError) as caught:
            wants(plan, reads, **given)
        assert expected in str(caught.value)
    else:
        assert wants(plan, reads, **given) == expected


def test_what_top_p_kept_is_replayed_without_bias(plan_of: PlanOf) -> None:
    cut = plan_of(**BIASED)
    unbiased = cut.config.rollout.model_copy(update={"accept_biased_sampling": False})
    plan = replace(cut, config=replace(cut.config, rollout=unbiased))
    assert wants(plan, TOP_P, ONLY_TOP_P) == ONLY_TOP_P
    with pytest.raises(SlimeError, match="gradients are biased"):
        wants(plan, frozenset())


def test_a_teacher_has_the_policys_ids(plan_of: PlanOf, tiny_model: Path, tmp_path: Path) -> None:
    def other(name: str, vocab_size: int, **ids: int | None) -> str:
        folder = shutil.copytree(tiny_model, tmp_path / name)
        config, tokenizer = (json.loads((folder / file).read_text()) for file in ("config.json", "tokenizer.json"))
        (folder / "config.json").write_text(json.dumps({**config, "vocab_size": vocab_size}))
        vocab = {**tokenizer["model"]["vocab"], **ids}
        tokenizer["model"]["vocab"] = {text: number for text, number in vocab.items() if number is not None}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        return str(folder)

    def served(model: str) -> dict[str, Json]:
        return {**BIG, "served_models": {"big": {"hf_checkpoint": model}}}

    size = json.loads((tiny_model / "config.json").read_text())["vocab_size"]
    texts = {n: text for text, n in json.loads((tiny_model / "tokenizer.json").read_text())["model"]["vocab"].items()}
    assert plan_of(**served(other("larger", 512, more=300))).served["big"].model == tmp_path / "larger"
    for model, message in (
        (other("smaller", size - 1), f"its vocab_size is {size - 1}, and the policy's {size}"),
        (
            other("shifted", size, **{texts[9]: 10, texts[10]: 9}),
            f"id 9 is {texts[9]!r} for the policy, and {texts[10]!r} for it",
        ),
        (other("cut", size, **{texts[9]: None}), f"id 9 is {texts[9]!r} for the policy, and no token for it"),
    ):
        with pytest.raises(SlimeError, match="the teacher has another vocabulary") as caught:
            plan_of(**served(model))
        assert message in str(caught.value)
    (tmp_path / "larger" / "tokenizer.json").write_text("[]")
    with pytest.raises(SlimeError, match=r"tokenizer.json cannot be read as a tokenizer"):
        plan_of(**served(str(tmp_path / "larger")))
