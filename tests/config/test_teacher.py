"""A served teacher in a plan: what it must be is seen before anything starts."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from slime_core.catalog import Catalog
from slime_core.config import Plan, parse_config, resolve
from slime_core.config.companions import unlike
from slime_core.errors import ConfigError, ModelError
from slime_core.sample import Json
from tests.tables import table

LEAST: Mapping[str, Json] = {
    "save": "s",
    "num_rollout": 3,
    "prompt_data": "p.jsonl",
    "rollout_max_response_len": 8,
    "reward": {"use": "math"},
    "use_opd": True,
    "opd_teacher_model": "big",
}


def plan_of(model: Path, teacher: Path, **changes: Json) -> Plan:
    served = {"big": {"hf_checkpoint": str(teacher)}}
    return resolve(
        parse_config({**LEAST, "hf_checkpoint": str(model), "served_models": served, **changes}), Catalog.discover()
    )


def other(model: Path, tmp_path: Path, **config: Json) -> Path:
    """A copy with another config."""
    copy = tmp_path / "other"
    shutil.copytree(model, copy)
    path = copy / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
    return copy


def changed(model: Path, **changes: Json) -> None:
    """Change what the tokenizer says of texts: `t9=63` gives t9 another id; None takes it out."""
    path = model / "tokenizer.json"
    about = json.loads(path.read_text())
    vocab = about["model"]["vocab"]
    for text, number in changes.items():
        vocab.pop(text, None)
        if number is not None:
            vocab[text] = number
    path.write_text(json.dumps(about))


def test_a_teacher_with_the_policys_ids_will_do(tiny_model: Path, tmp_path: Path) -> None:
    assert plan_of(tiny_model, tiny_model).served["big"].model == tiny_model
    larger = other(tiny_model, tmp_path, vocab_size=512)
    changed(larger, more=300)
    assert plan_of(tiny_model, larger).served["big"].model == larger


@table(
    "changes, said",
    [
        ({"use_opd": False}, "opd_teacher_model has no effect here: set use_opd = true"),
        ({"opd_teacher_load": "m"}, "opd_teacher_load and opd_teacher_model both name a teacher"),
        (
            {"opd_teacher_model": "bigg"},
            "opd_teacher_model = 'bigg': this run serves no such model. Did you mean 'big'? Models: big",
        ),
        ({"served_models": {}}, "this run serves no such model. Models: none; add one by [served_models.big]"),
    ],
)
def test_a_teacher_that_is_not_there_is_refused(tiny_model: Path, changes: Mapping[str, Json], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_of(tiny_model, tiny_model, **changes)
    assert said in " ".join(str(caught.value).split())


def test_other_ids_are_refused_with_the_first_of_them(tiny_model: Path, tmp_path: Path) -> None:
    vocab = json.loads((tiny_model / "tokenizer.json").read_text())["model"]["vocab"]
    texts = {number: text for text, number in vocab.items()}
    shifted = other(tiny_model, tmp_path)
    changed(shifted, **{texts[9]: 10, texts[10]: 9})
    with pytest.raises(ModelError, match="another vocabulary") as caught:
        plan_of(tiny_model, shifted)
    assert f"id 9 is {texts[9]!r} to the policy, and {texts[10]!r} to it" in str(caught.value)
    changed(shifted, **{texts[10]: None})
    assert unlike(tiny_model, shifted) == f"id 9 is {texts[9]!r} to the policy, and no token to it"
    assert unlike(shifted, shifted) is None


def test_a_smaller_vocabulary_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    size = json.loads((tiny_model / "config.json").read_text())["vocab_size"]
    with pytest.raises(ModelError, match=f"its vocab_size is {size - 1}, and the policy's {size}"):
        plan_of(tiny_model, other(tiny_model, tmp_path, vocab_size=size - 1))


def test_a_tokenizer_that_cannot_be_read_is_named(tiny_model: Path, tmp_path: Path) -> None:
    broken = other(tiny_model, tmp_path)
    (broken / "tokenizer.json").write_text("[]")
    with pytest.raises(ModelError, match=r"tokenizer.json cannot be read as a tokenizer"):
        unlike(tiny_model, broken)
