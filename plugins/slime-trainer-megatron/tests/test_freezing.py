"""Freezing: frozen weights stay, other weights train as in the local trainer, unmatched patterns are refused."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from layout_runs import Case, train, unfused
from models_and_steps import CONFIG, OWN, dealt, setup_of, steps_of, write_model
from safetensors.torch import load_file

from slime_core.errors import ConfigError
from slime_trainer_megatron.arguments import settings_model
from slime_trainer_megatron.config_json import read_model
from slime_trainer_megatron.freezing import Patterns, frozen_names
from tests.tables import table

DENSE = {**CONFIG, "model_type": "qwen3"}
LATENT = {**CONFIG, **OWN["deepseek_v3"], "model_type": "deepseek_v3"}
ONE = {"num_gpus": 1}
AGAIN = {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
CASES: Mapping[str, tuple[str, Mapping[str, object], Mapping[str, object]]] = {
    "embedding, computed again": ("qwen3", {"freeze_params_name_list": ["embedding"], **AGAIN}, {"freeze": ["embed"]}),
    "last layer": ("qwen3", {"only_train_params_name_list": [r"layers\.3\."]}, {"only": [r"layers\.3\."]}),
    "no expert": ("qwen3_moe", {"freeze_params_name_list": ["experts"]}, {"freeze": ["experts"]}),
    "experts": ("qwen3_moe", {"only_train_params_name_list": [r"layers\.[01].*experts"]}, {"only": ["[01].*experts"]}),
}
"""Family, settings, and the same settings of the local trainer."""
LAYOUTS: Mapping[str, Mapping[str, object]] = {
    "data, dealt moments": {"use_distributed_optimizer": True},
    "pipeline": {"pipeline_model_parallel_size": 2},
    "sequence": {"tensor_model_parallel_size": 2, "sequence_parallel": True},
}


def by_local_trainer(model: Path, folder: Path, patterns: Mapping[str, list[str]]) -> dict[str, torch.Tensor]:
    from slime_local.rank import LocalRank
    from slime_local.settings import LocalTrainerSettings

    keys = {"only": "only_train_params_name_list", "freeze": "freeze_params_name_list"}
    settings = LocalTrainerSettings(ranks=1, **{keys[name]: each for name, each in patterns.items()})  # type: ignore[arg-type]
    setup = setup_of(model, folder, ONE)
    object.__setattr__(setup, "settings", settings)
    rank = LocalRank(0, 1, setup)
    for rows in steps_of(model, 2):
        rank.train_step(dealt(rows, 1)[0])
    return unfused(dict(rank.weights()))


@pytest.mark.parametrize("name", CASES)
def test_unfrozen_weights_train_like_the_local_trainer(name: str, tmp_path: Path) -> None:
    from slime_trainer_megatron.rank import MegatronRank

    family, settings, theirs = CASES[name]
    model = write_model(tmp_path / "model", family, tie_word_embeddings=family == "qwen3")
    before, wanted = load_file(model / "model.safetensors"), by_local_trainer(model, tmp_path, theirs)  # type: ignore[arg-type]
    rank = MegatronRank(0, 1, setup_of(model, tmp_path, {**ONE, **settings}))
    for rows in steps_of(model, 2):
        rank.train_step(dealt(rows, 1)[0])
    moved = set[str]()
    for slot, each in rank.weights():
        assert (each - wanted[slot]).abs().max() < 5e-5, slot
        moved |= set() if torch.equal(each, before[slot]) else {slot}
    assert moved == {slot for slot, each in wanted.items() if not torch.equal(each, before[slot])}
    assert 0 < len(moved) < len(before)


@table(
    "config, patterns, message",
    [
        (
            DENSE,
            Patterns(freeze=["q_proj"]),
            r"matches 'q_proj'\. Names are Megatron's: embedding\.word_embeddings",
        ),
        (DENSE, Patterns(only=["mlp", "linear_qvk"]), "Did you mean 'linear_qkv'?"),
        (DENSE, Patterns(freeze=["."]), "freezes all weights of the model"),
        (
            LATENT,
            Patterns(freeze=["expert_bias"]),
            r"no weight of the model \(deepseek_v3\) matches 'expert_bias'",
        ),
    ],
)
def test_pattern_without_a_match_is_refused(config: Mapping[str, object], patterns: Patterns, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        frozen_names(read_model(config), patterns)


def test_router_can_be_frozen() -> None:
    frozen = frozen_names(read_model(LATENT), Patterns(freeze=["router"]))
    assert frozen == {f"decoder.layers.{layer}.mlp.router.weight" for layer in (1, 2, 3)}


@table(
    "given, message",
    [
        ({"only_train_params_name_list": ["a"], "freeze_params_name_list": ["b"]}, "give one of them"),
        ({"freeze_params_name_list": ["("]}, "not a regular expression"),
    ],
)
def test_invalid_freezing_settings_are_refused(given: Mapping[str, Sequence[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_model().model_validate(given)


@pytest.mark.layouts
@pytest.mark.timeout(600)
def test_layouts_freeze_the_same(tmp_path: Path) -> None:
    tied = write_model(tmp_path / "tied", "qwen3", tie_word_embeddings=True)
    experts = write_model(tmp_path / "experts", "qwen3_moe")
    patterns: Mapping[str, tuple[Path, Mapping[str, object]]] = {
        "embedding": (tied, {"freeze_params_name_list": ["embedding"]}),
        "one layer": (tied, {"only_train_params_name_list": [r"layers\.0\."]}),
        "experts": (experts, {"only_train_params_name_list": [r"layers\.[01]\..*experts"]}),
    }
    cases = [
        Case(f"{what} {name}", model, {"num_gpus": 2, **chosen, **layout}, save=2)
        for what, (model, chosen) in patterns.items()
        for name, layout in LAYOUTS.items()
    ]
    again = [Case(f"{case.name} again", case.model, case.settings, load=case.name) for case in cases]
    (tmp_path / "one").mkdir()
    alone = [Case(what, model, {**ONE, **chosen}) for what, (model, chosen) in patterns.items()]
    results, wanted = train(tmp_path, [*cases, *again], ranks=2), train(tmp_path / "one", alone, ranks=1)
    for case in cases:
        mine, theirs = results[case.name], wanted[next(what for what in patterns if case.name.startswith(what))]
        assert mine.losses == pytest.approx(theirs.losses, rel=0, abs=5e-6), case.name
        assert mine.norms == pytest.approx(theirs.norms, rel=1e-4), case.name
        far = {each: float((mine.weights[each] - theirs.weights[each]).abs().max()) for each in mine.weights}
        assert max(far.values()) < 5e-5, (case.name, max(far, key=lambda each: far[each]))
        assert mine.published, case.name
        assert results[f"{case.name} again"].losses == mine.losses[2:], case.name
