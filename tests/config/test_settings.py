"""Settings of choices: typed sections, errors that help."""

import re
from typing import Literal

import pytest
from pydantic import Field, SecretStr, field_validator

from slime_core import RewardSpec, Settings
from slime_core.config import read_settings, show_settings
from slime_core.errors import ConfigError, PluginError
from slime_core.sample import Json
from tests.tables import table


class Retry(Settings):
    attempts: int = Field(3, ge=1, description="Calls before giving up.")
    backoff_s: float = 1.0


class Endpoint(Settings):
    url: str
    retry: Retry = Retry()


class Judge(Settings):
    """A judge behind one or several endpoints."""

    endpoint: Endpoint
    others: list[Endpoint] = Field([])
    by_task: dict[str, Retry] = Field({})
    fallback: Retry | None = None
    mode: Literal["strict", "lenient"] = "strict"
    key: SecretStr | None = None

    @field_validator("mode")
    @classmethod
    def _is_sober(cls, mode: str) -> str:
        if mode == "lenient":
            raise ValueError("No judge is lenient today")
        return mode


SPEC = RewardSpec("judge", lambda settings, setup: None, Judge, summary="Asks a judge.")  # type: ignore[arg-type,return-value]
PLAIN = RewardSpec("plain", lambda settings, setup: None)  # type: ignore[arg-type,return-value]
GOOD: dict[str, Json] = {"endpoint": {"url": "http://localhost"}}


def refused(**changes: Json) -> str:
    with pytest.raises(ConfigError) as caught:
        read_settings("reward", "judge", SPEC, {**GOOD, **changes})
    return str(caught.value)


def test_a_section_becomes_typed_settings() -> None:
    settings = read_settings("reward", "judge", SPEC, {**GOOD, "others": [{"url": "b", "retry": {"attempts": 5}}]})
    assert isinstance(settings, Judge)
    assert (settings.endpoint.url, settings.others[0].retry.attempts) == ("http://localhost", 5)


@table(
    "changes, message",
    [
        ({"mood": 1}, "unknown setting reward.judge.mood. Did you mean 'mode'? [reward.judge] has: endpoint, others"),
        (
            {"endpoint": {"url": "a", "retry": {"atempts": 2}}},
            "'attempts'? [reward.judge.endpoint.retry] has: attempts",
        ),
        ({"others": [{"url": "a"}, {"url": "b", "retri": {}}]}, "reward.judge.others.1.retri. Did you mean 'retry'?"),
        ({"by_task": {"sums": {"backof_s": 2}}}, "reward.judge.by_task.sums.backof_s. Did you mean 'backoff_s'?"),
        ({"fallback": {"attempt": 2}}, "unknown setting reward.judge.fallback.attempt. Did you mean 'attempts'?"),
        ({"fallback": {"attempts": 0}}, "reward.judge.fallback.attempts = 0: input should be greater than or equal"),
        ({"endpoint": {}}, "reward.judge.endpoint.url is required: set it in the run file"),
        ({"mode": "strickt"}, "reward.judge.mode = 'strickt': input should be 'strict' or 'lenient'"),
        ({"mode": "lenient"}, "reward.judge.mode = 'lenient': no judge is lenient today"),
    ],
)
def test_what_does_not_fit_is_named_where_it_is(changes: dict[str, Json], message: str) -> None:
    assert message in refused(**changes)


def test_a_model_that_pydantic_cannot_build_names_its_choice() -> None:
    class Unbuildable(Settings):
        @field_validator("nothing")
        @classmethod
        def _is_fine(cls, value: int) -> int:
            return value

    spec = RewardSpec("odd", lambda settings, setup: None, Unbuildable)  # type: ignore[arg-type,return-value]
    with pytest.raises(PluginError, match=r"\[reward\.odd\]: pydantic cannot build its settings model Unbuildable"):
        read_settings("reward", "odd", spec, {})


def test_a_choice_of_a_project_file_is_named_as_toml_spells_it() -> None:
    with pytest.raises(ConfigError, match=re.escape('[reward."./mine.py:spec"] has: none.')):
        read_settings("reward", "./mine.py:spec", PLAIN, {"x": 1})


def test_settings_are_shown_with_the_words_of_the_run_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_SECRET", "tok-90211f")
    monkeypatch.setenv("JUDGE_URL", "http://10.1.2.3:9/v1")
    given: dict[str, Json] = {"endpoint": {"url": "$env:JUDGE_URL"}, "key": "$env:JUDGE_SECRET"}
    shown = show_settings(read_settings("reward", "judge", SPEC, given))
    assert (shown["endpoint"], shown["key"]) == (
        {"url": "$env:JUDGE_URL", "retry": {"attempts": 3, "backoff_s": 1.0}},
        "$env:JUDGE_SECRET",
    )
