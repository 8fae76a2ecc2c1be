import json
from pathlib import Path

import pytest
from chat import MOVES_TOOLS, load_chat

from slime_core.cli import run_cli


def test_proved_template_exits_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_chat(tmp_path)
    assert run_cli(["agent", "prove", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "10 of 10 kinds of turn" in said
    assert "the parser 'hermes' reads the tool calls" in said


def test_forking_template_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_chat(tmp_path, MOVES_TOOLS)
    assert run_cli(["agent", "prove", str(tmp_path), "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    proved = {each["turn"]: each["proved"] for each in shown["turns"]}
    assert proved["text, then user"] is True
    assert proved["text, then user, tools offered"] is False


def test_prove_refuses_a_model_without_a_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_chat(tmp_path)
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"chat_template": None}))
    assert run_cli(["agent", "prove", str(tmp_path)]) == 2
    assert "chat template" in capsys.readouterr().err


def test_prove_lists_parsers_for_unknown_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_chat(tmp_path, "{% for m in messages %}{{ m.content }}{% endfor %}")
    assert run_cli(["agent", "prove", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert "no parser reads this template's tool calls" in said
    assert "  hermes: " in said
