"""What is read from the environment is replaced wherever text leaves the process."""

import base64
import io
import json
import logging
import multiprocessing
import os
import subprocess
import sys
import textwrap
import urllib.parse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, SecretStr, ValidationError

from slime_core.roles import Choice, Settings
from slime_core.secrets import Redactor, read_variable, redacted_output
from tests.tables import table

VALUE = "tok-5f1c'e\"9 b/7"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", VALUE)


class Nested(Settings):
    token: SecretStr


class Judge(Settings):
    key: str
    masked: SecretStr | None = None
    headers: dict[str, str] = Field({})
    nested: Nested | None = None
    limit: int = 3


def judge() -> Judge:
    return Judge.model_validate(
        {
            "key": "$env:JUDGE_KEY",
            "masked": "$env:JUDGE_KEY",
            "headers": {"auth": "$env:JUDGE_KEY"},
            "nested": {"token": "$env:JUDGE_KEY"},
        }
    )


def test_settings_get_the_value_at_every_depth() -> None:
    made = judge()
    assert made.masked is not None
    assert made.nested is not None
    assert [made.key, made.headers["auth"], made.masked.get_secret_value()] == [VALUE] * 3
    assert made.nested.token.get_secret_value() == VALUE


def test_a_default_may_be_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    class ByDefault(Settings):
        key: SecretStr = SecretStr("$env:JUDGE_KEY")
        url: str = "$env:JUDGE_URL"

    monkeypatch.setenv("JUDGE_URL", "http://judge")
    made = ByDefault()
    assert (made.key.get_secret_value(), made.url) == (VALUE, "http://judge")
    monkeypatch.delenv("JUDGE_URL")
    with pytest.raises(ValidationError, match="JUDGE_URL is not set"):
        ByDefault()


def test_no_form_of_settings_shows_the_value() -> None:
    choice = Choice("reward", "judge", "slime-judge", judge())
    for text in (repr(choice), str(choice.settings), f"{choice.settings!r}", str(choice)):
        assert "tok-5f1c" not in text
        assert "$env:JUDGE_KEY" in text


def test_a_copy_in_another_process_hides_the_value_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = multiprocessing.Pipe()
    made = judge()
    ours.send(made)
    there = Redactor()
    monkeypatch.setattr(f"{Settings.__module__}.REDACTOR", there)
    assert theirs.recv() == made
    assert there.redact(f"denied: {VALUE}") == "denied: $env:JUDGE_KEY"


@table(
    "values, expected",
    [
        ({"key": "$env:NO_SUCH_KEY"}, "the environment variable NO_SUCH_KEY is not set: export it"),
        ({"key": "$env:EMPTY_KEY"}, "the environment variable EMPTY_KEY is empty: export it"),
        ({"key": "$env:"}, r"no name follows \$env:; write \$env:NAME"),
        ({"key": "x", "masked": "literal-9"}, r'read from the environment, write masked = "\$env:MASKED"'),
    ],
)
def test_what_cannot_be_read_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, object], expected: str
) -> None:
    monkeypatch.setenv("EMPTY_KEY", "")
    with pytest.raises(ValidationError, match=expected) as caught:
        Judge.model_validate(values)
    assert "literal-9" not in str(caught.value)


def test_an_error_about_the_value_does_not_show_it() -> None:
    with pytest.raises(ValidationError) as caught:
        Judge.model_validate({"key": "x", "limit": "$env:JUDGE_KEY"})
    assert "tok-5f1c" not in str(caught.value)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=4))
def test_quoted_and_encoded_forms_are_replaced(value: str) -> None:
    redactor = Redactor()
    redactor.add(value, "$env:X")
    for form in (value, repr(value)[1:-1], json.dumps(value)[1:-1], urllib.parse.quote_plus(value)):
        assert redactor.redact(f"\n{form}\n") == "\n$env:X\n"


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=12),
    st.binary(max_size=5),
    st.binary(max_size=5),
)
def test_base64_of_the_value_is_replaced_within_other_text(value: str, before: bytes, after: bytes) -> None:
    redactor = Redactor()
    redactor.add(value, "$env:X")
    whole = before + value.encode() + after
    for encoded in (base64.b64encode(whole).decode(), base64.urlsafe_b64encode(whole).decode()):
        shown = redactor.redact(f"Authorization: Basic {encoded}")
        assert "$env:X" in shown
        assert len(shown) < len("Authorization: Basic $env:X") + 4 * (len(before) // 3 + len(after) // 3 + 4)


def test_the_longer_of_two_secrets_is_replaced_first() -> None:
    redactor = Redactor()
    redactor.add("abcd", "$env:SHORT")
    redactor.add("abcdefgh", "$env:LONG")
    assert redactor.redact("abcd abcdefgh") == "$env:SHORT $env:LONG"


def test_a_short_value_is_replaced_as_a_whole_only() -> None:
    redactor = Redactor()
    redactor.add("a", "$env:X")
    assert redactor.redact("a man a plan") == "a man a plan"
    assert redactor.redact_data({"key": "a", "other": "ab"}) == {"key": "$env:X", "other": "ab"}


def test_numbers_that_were_read_are_replaced_and_truth_values_are_not() -> None:
    redactor = Redactor()
    redactor.add("8080", "$env:PORT")
    redactor.add("True", "$env:FLAG")
    assert redactor.redact_data([8080, 80, True, None, 0.5]) == ["$env:PORT", 80, True, None, 0.5]


def test_output_and_logs_are_redacted_and_given_back_afterwards(capsys: pytest.CaptureFixture[str]) -> None:
    read_variable("$env:JUDGE_KEY")
    stream, log = io.StringIO(), logging.getLogger("slime_core.test_secrets")
    handler = logging.StreamHandler(stream)
    log.addHandler(handler)
    before = sys.stdout
    try:
        with redacted_output():
            print("key", VALUE)
            print("key", VALUE, file=sys.stderr)
            log.warning("denied: %s", VALUE)
            try:
                raise RuntimeError(f"denied: {VALUE}")
            except RuntimeError:
                log.exception("failed")
    finally:
        log.removeHandler(handler)
    out, err = capsys.readouterr()
    for text in (out, err, stream.getvalue()):
        assert "tok-5f1c" not in text
        assert "$env:JUDGE_KEY" in text
    assert "RuntimeError: denied: $env:JUDGE_KEY" in stream.getvalue()
    assert sys.stdout is before


def test_a_cores_own_key_is_not_read_from_the_environment() -> None:
    from slime_core.config import RunArgs

    with pytest.raises(ValidationError, match="only settings of plugins are read from the environment"):
        RunArgs.model_validate({"hf_checkpoint": "$env:JUDGE_KEY", "save": Path("runs/x")})


def test_what_python_says_about_an_uncaught_error_is_redacted() -> None:
    code = """
        from slime_core.secrets import read_variable, redact_output
        redact_output()
        raise RuntimeError("denied: " + read_variable("$env:JUDGE_KEY"))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "RuntimeError: denied: $env:JUDGE_KEY" in ran.stderr
    assert "tok-5f1c" not in ran.stderr


def test_an_encoding_that_click_distrusts_hides_the_value_too() -> None:
    program = (
        "import click; from slime_core.secrets import *; read_variable('$env:JUDGE_KEY'); redact_output(); "
        "click.echo('key " + VALUE.replace("'", "\\'") + "')"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "key $env:JUDGE_KEY\n"
