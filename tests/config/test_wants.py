"""What a trainer reads is asked of the engine, and refused where nobody gives it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from slime_core.catalog import Catalog
from slime_core.config import Chosen, ChosenRoles, Plan, parse_config, resolve
from slime_core.config.companions import wanted_extras
from slime_core.errors import ConfigError
from slime_core.roles import EngineSpec, Extra, GeneratorSpec, PluginSet, SampleField, TrainerSpec
from slime_core.sample import Json
from tests.tables import table

LEAST: Mapping[str, Json] = {
    "save": "s",
    "num_rollout": 3,
    "prompt_data": "p.jsonl",
    "rollout_max_response_len": 8,
    "reward": {"use": "math"},
}
EXPERTS = frozenset({SampleField.ROLLOUT_ROUTED_EXPERTS})
TOP_P = frozenset({SampleField.ROLLOUT_TOP_P_TOKEN_IDS, SampleField.ROLLOUT_TOP_P_TOKEN_OFFSETS})

RICH = """
from slime_core import hookimpl
from slime_core.roles import EngineSpec, Extra

SLIME_API = "1"

@hookimpl
def slime_engines():
    yield EngineSpec("telling", lambda settings, setup: None, gives=frozenset({Extra.ROUTED_EXPERTS}))
"""


WITHOUT_GIVERS = PluginSet(only=("slime-local", "slime-reward-math"))


def plan_of(model: Path, **changes: Json) -> Plan:
    catalog = Catalog.discover(WITHOUT_GIVERS)
    return resolve(parse_config({**LEAST, "hf_checkpoint": str(model), **changes}), catalog)


def wants(
    plan: Plan,
    reads: frozenset[SampleField],
    gives: frozenset[Extra] = frozenset(),
    brings: frozenset[Extra] = frozenset(),
    withholds: frozenset[Extra] = frozenset(),
) -> frozenset[Extra]:
    """Of a trainer, an engine and a generator that read, give (but for some) and bring this."""
    trainer, engine, generator = (plan.roles.one(spec) for spec in (TrainerSpec, EngineSpec, GeneratorSpec))
    chosen = {
        "trainer": (with_spec(trainer, replace(trainer.spec, reads=lambda settings: reads)),),
        "engine": (with_spec(engine, replace(engine.spec, gives=gives, withholds=lambda settings: withholds)),),
        "generator": (with_spec(generator, replace(generator.spec, gives=brings)),),
    }
    return wanted_extras(plan.config, ChosenRoles({**plan.roles, **chosen}), plan.catalog)


def with_spec(chosen: Chosen, spec: TrainerSpec | EngineSpec | GeneratorSpec) -> Chosen:
    return replace(chosen, registered=replace(chosen.registered, spec=spec))


def test_the_core_s_own_trainer_wants_nothing(tiny_model: Path) -> None:
    assert plan_of(tiny_model).want == frozenset()


def test_what_is_read_and_given_is_wanted_and_nothing_else(tiny_model: Path) -> None:
    plan = plan_of(tiny_model)
    assert wants(plan, EXPERTS, frozenset(Extra)) == {Extra.ROUTED_EXPERTS}
    assert wants(plan, EXPERTS | {SampleField.TRAIN_METADATA}, frozenset(Extra)) == {Extra.ROUTED_EXPERTS}
    assert wants(plan, frozenset(), frozenset(Extra)) == frozenset()


def test_what_nobody_gives_is_refused_and_the_message_says_who_reads_it(tiny_model: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        wants(plan_of(tiny_model), EXPERTS)
    said = str(caught.value)
    assert said.startswith("trainer 'local' reads rollout_routed_experts of samples, and engine 'local' does not give")
    assert "no installed engine does" in said


def test_what_an_engine_withholds_with_its_settings_is_not_given(tiny_model: Path) -> None:
    plan = plan_of(tiny_model)
    assert wants(plan, EXPERTS, frozenset(Extra), withholds=frozenset({Extra.TOP_P_TOKENS})) == {Extra.ROUTED_EXPERTS}
    with pytest.raises(ConfigError, match=r"engine 'local' does not give routed_experts with its settings: choose oth"):
        wants(plan, EXPERTS, frozenset(Extra), withholds=frozenset({Extra.ROUTED_EXPERTS}))


def test_the_message_names_an_engine_that_gives_it(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rich.py").write_text(RICH, "utf-8")
    catalog = Catalog.discover(replace(WITHOUT_GIVERS, modules=("./rich.py",)))
    plan = resolve(parse_config({**LEAST, "hf_checkpoint": str(tiny_model)}), catalog)
    with pytest.raises(ConfigError, match=r"choose one that does \(./rich.py/telling\)"):
        wants(plan, EXPERTS)


def test_what_the_generator_brings_is_not_asked_of_the_engine(tiny_model: Path) -> None:
    assert wants(plan_of(tiny_model), EXPERTS, brings=frozenset({Extra.ROUTED_EXPERTS})) == frozenset()


def test_top_p_sets_are_wanted_where_top_p_is_on(tiny_model: Path) -> None:
    given = frozenset({Extra.TOP_P_TOKENS})
    assert wants(plan_of(tiny_model), TOP_P, given) == frozenset()
    assert wants(plan_of(tiny_model, rollout_top_p=0.9, accept_biased_sampling=True), TOP_P, given) == given
    assert wants(plan_of(tiny_model), TOP_P) == frozenset()
    with pytest.raises(ConfigError, match="does not give top_p_tokens"):
        wants(plan_of(tiny_model, rollout_top_p=0.9, accept_biased_sampling=True), TOP_P)


def test_a_run_that_trains_on_no_new_samples_is_not_refused(tiny_model: Path) -> None:
    assert wants(plan_of(tiny_model, debug_rollout_only=True), EXPERTS) == frozenset()
    assert wants(plan_of(tiny_model, load_debug_rollout_data="other"), EXPERTS) == frozenset()


@table(
    "cut",
    [{"rollout_top_p": 0.9}, {"rollout_top_k": 20}, {"rollout_min_p": 0.1}],
)
def test_samples_of_another_distribution_are_trained_on_only_if_somebody_says_so(
    tiny_model: Path, cut: dict[str, Json]
) -> None:
    (key,) = cut
    with pytest.raises(ConfigError, match=f"{key}: trainer 'local' takes log-probs among all tokens"):
        plan_of(tiny_model, **cut)
    assert plan_of(tiny_model, **cut, accept_biased_sampling=True).want == frozenset()
    assert plan_of(tiny_model, **cut, debug_rollout_only=True).want == frozenset()
    with pytest.raises(ConfigError, match="accept_biased_sampling has no effect here"):
        plan_of(tiny_model, accept_biased_sampling=True)


def test_what_top_p_kept_is_replayed_without_bias(tiny_model: Path) -> None:
    given = frozenset({Extra.TOP_P_TOKENS})
    cut = plan_of(tiny_model, rollout_top_p=0.9, accept_biased_sampling=True)
    unbiased = cut.config.rollout.model_copy(update={"accept_biased_sampling": False})
    plan = replace(cut, config=cut.config.model_copy(update={"rollout": unbiased}))
    assert wants(plan, TOP_P, given) == given
    with pytest.raises(ConfigError, match="gradients are biased"):
        wants(plan, frozenset())
