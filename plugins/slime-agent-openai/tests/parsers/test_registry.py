from importlib.metadata import EntryPoint, EntryPoints

import pytest

from slime_agent_openai.parsers import registry
from slime_agent_openai.parsers.families import OWN
from slime_agent_openai.parsers.registry import families, family_named, no_parser_message
from slime_core.errors import PluginError, UnknownName


def test_unknown_parser_name_lists_parsers() -> None:
    with pytest.raises(
        UnknownName, match=r"no agent parser 'hermez'\. Did you mean 'hermes'\? Use one of deepseek, gemma4, "
    ):
        family_named("hermez")
    assert family_named("kimi-k2") == OWN["kimi-k2"]


def test_no_fitting_parser_lists_all_parsers() -> None:
    text = no_parser_message("models/mine", "plain")
    assert "'plain', the agent parser for the chat template of models/mine, reads no tool calls" in text
    assert 'parser = "hermes"' in text
    assert all(f"  {name}: {family.summary}" in text for name, family in OWN.items() if name != "plain")


def test_parsers_of_other_packages_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, shouted="slime_agent_openai.parsers.families:PLAIN")
    assert family_named("shouted") == OWN["plain"]
    assert list(families()) == ["shouted", *OWN]


@pytest.mark.parametrize(("value", "says"), [("no.such:FAMILY", "cannot be loaded"), ("json:dumps", "is a function")])
def test_broken_parser_entry_point_is_named(monkeypatch: pytest.MonkeyPatch, value: str, says: str) -> None:
    install(monkeypatch, shouted=value)
    for find in (families, lambda: family_named("shouted")):
        with pytest.raises(PluginError, match=f"'shouted' of a package .*{says}"):
            find()


def install(monkeypatch: pytest.MonkeyPatch, **entries: str) -> None:
    found = EntryPoints(EntryPoint(name, value, registry.GROUP) for name, value in entries.items())
    monkeypatch.setattr(registry, "entry_points", lambda **select: found.select(**select))
