"""RankHooks: watchers in order, an error in one named and never swallowed."""

from collections.abc import Callable
from pathlib import Path

import pytest

from slime_core.catalog import Catalog
from slime_core.errors import PluginError
from slime_core.events import BeforeLogProb
from slime_train import RankHooks

Install = Callable[..., None]
EVENT = BeforeLogProb(rank=1, rollout_id=3, weights="actor", model=None)
HEADER = """
from pathlib import Path

from slime_core import hookimpl

SLIME_API = "1"


def note(text):
    with Path("told.txt").open("a") as file:
        file.write(text + " ")

"""


@pytest.fixture
def hooks(install_plugin: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., RankHooks]:
    monkeypatch.chdir(tmp_path)

    def made(*bodies: str) -> RankHooks:
        for number, body in enumerate(bodies):
            files = {f"rank{number}.py": HEADER + body}
            install_plugin(f"slime-rank-{number}", files, entry_points={f"rank-{number}": f"rank{number}"})
        return RankHooks(Catalog.discover(strict=True))

    return made


def told(tmp_path: Path) -> list[str]:
    return (tmp_path / "told.txt").read_text().split()


def test_watchers_are_called_in_the_order_of_statuses(hooks: Callable[..., RankHooks], tmp_path: Path) -> None:
    body = "@hookimpl{}\ndef slime_before_log_prob(event): note(f'{}-{{event.weights}}')\n"
    silent = "@hookimpl\ndef slime_before_log_prob(): note('silent')\n"
    orders = ("", "(trylast=True)", "(tryfirst=True)")
    hooks(*(body.format(order, number) for number, order in enumerate(orders)), silent).fire(EVENT)
    assert told(tmp_path) == ["2-actor", "0-actor", "silent", "1-actor"]


@pytest.mark.parametrize("error", ["KeyError('lm_head')", "SystemExit('lm_head')"])
def test_an_error_names_plugin_hook_and_rank_and_stops_the_round(
    hooks: Callable[..., RankHooks], tmp_path: Path, error: str
) -> None:
    made = hooks(
        "@hookimpl\ndef slime_before_log_prob(event): note('first')\n",
        f"@hookimpl\ndef slime_before_log_prob(event): raise {error}\n",
        "@hookimpl\ndef slime_before_log_prob(event): note('third')\n",
    )
    expected = r"^rank hook slime_before_log_prob of plugin slime-rank-1 raised on rank 1: \w+: '?lm_head"
    with pytest.raises(PluginError, match=expected):
        made.fire(EVENT)
    assert told(tmp_path) == ["first"]
