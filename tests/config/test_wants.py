"""What a trainer reads is asked of the engine, and refused where nobody gives it."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from slime_core.catalog import Catalog
from slime_core.config import Chosen, ChosenRoles, Plan, parse_config, resolve
from slime_core.config.fit import wanted_extras
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


GIVEN, EXPERT = frozenset(Extra), frozenset({Extra.ROUTED_EXPERTS})
ONLY_TOP_P, NONE = frozenset({Extra.TOP_P_TOKENS}), frozenset[Extra]()
CUT: dict[str, Json] = {"rollout_top_p": 0.9, "accept_biased_sampling": True}


@table(
    "changes, reads, given, expected",
    [
        ({}, EXPERTS, {"gives": GIVEN}, EXPERT),
        ({}, EXPERTS | {SampleField.TRAIN_METADATA}, {"gives": GIVEN}, EXPERT),
        ({}, frozenset(), {"gives": GIVEN}, NONE),
        ({}, EXPERTS, {"gives": GIVEN, "withholds": ONLY_TOP_P}, EXPERT),
        ({}, EXPERTS, {"brings": EXPERT}, NONE),
        ({}, TOP_P, {"gives": ONLY_TOP_P}, NONE),
        (CUT, TOP_P, {"gives": ONLY_TOP_P}, ONLY_TOP_P),
        ({}, TOP_P, {}, NONE),
        ({"debug_rollout_only": True}, EXPERTS, {}, NONE),
        ({"load_debug_rollout_data": "other"}, EXPERTS, {}, NONE),
        (CUT, TOP_P, {}, "does not give top_p_tokens"),
        ({}, EXPERTS, {}, "trainer 'local' reads rollout_routed_experts of samples, and engine 'local' does not give"),
        ({}, EXPERTS, {}, "no installed engine does"),
        ({}, EXPERTS, {"gives": GIVEN, "withholds": EXPERT}, "does not give routed_experts with its settings: choose"),
    ],
)
def test_what_is_read_is_wanted_where_the_engine_gives_it(
    tiny_model: Path,
    changes: dict[str, Json],
    reads: frozenset[SampleField],
    given: dict[str, frozenset[Extra]],
    expected: frozenset[Extra] | str,
) -> None:
    plan = plan_of(tiny_model, **changes)
    if isinstance(expected, str):
        with pytest.raises(ConfigError) as caught:
            wants(plan, reads, **given)
        assert expected in str(caught.value)
    else:
        assert wants(plan, reads, **given) == expected


def test_the_message_names_an_engine_that_gives_it(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rich.py").write_text(RICH, "utf-8")
    catalog = Catalog.discover(replace(WITHOUT_GIVERS, modules=("./rich.py",)))
    plan = resolve(parse_config({**LEAST, "hf_checkpoint": str(tiny_model)}), catalog)
    with pytest.raises(ConfigError, match=r"choose one that does \(./rich.py/telling\)"):
        wants(plan, EXPERTS)


@table("cut", [{"rollout_top_p": 0.9}, {"rollout_top_k": 20}, {"rollout_min_p": 0.1}])
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
