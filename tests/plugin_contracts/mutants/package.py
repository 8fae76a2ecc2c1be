"""An honest package, and each way of breaking it: source and metadata, to be installed."""

from dataclasses import dataclass

MODULE = """
from slime_core import RewardSpec, Score, Settings, Setup, hookimpl

SLIME_API = "1"


class Limits(Settings):
    limit: int = 3


async def short(sample, ctx):
    return Score(float(len(sample.response) < 3))


def build(settings, setup):
    return short


@hookimpl
def slime_rewards():
    yield RewardSpec("short", build, Limits, summary="1 when the response is short")
"""
SHADOW = """
from slime_core.roles import GeneratorSpec


@hookimpl
def slime_generators():
    yield GeneratorSpec("single_turn", build, Limits, summary="one turn, or less")
"""
NAME = "slime-reward-short"


@dataclass(frozen=True)
class Package:
    """A distribution with one module."""

    source: str = MODULE
    entry_points: tuple[tuple[str, str], ...] = (("reward-short", "reward_short"),)
    contracts: tuple[tuple[str, str], ...] = ()
    requires: tuple[str, ...] = ("slime-core>=0.1,<0.2",)
    readme: str = "Offers the reward `short`."


def first(line: str) -> Package:
    """The module begins with this line."""
    return Package(source=f"{line}\n{MODULE}")


def instead(old: str, new: str, head: str = "") -> Package:
    """The module has one text instead of another."""
    assert old in MODULE
    return Package(source=f"{head}\n{MODULE.replace(old, new)}")


GOOD = [Package(), Package(contracts=(("reward.short", "slime_testing.reward:RewardContract"),))]
MUTANTS = {
    "PKG-001": [Package(entry_points=(("short", "reward_short"),))],
    "PKG-002": [
        instead('SLIME_API = "1"', 'SLIME_API = "2"'),
        instead("def slime_rewards():", "def slime_reward():"),
        instead("def slime_rewards():", "def slime_rewards(config):"),
        first("import a_library_that_is_not_there"),
        first("raise SystemExit(0)"),
        instead("    yield RewardSpec(", "    yield build\n    yield RewardSpec("),
        instead("    yield RewardSpec(", "    yield RewardSpec('short', build)\n    yield RewardSpec("),
    ],
    "PKG-003": [first("import numpy"), first("import warnings; warnings.warn('old')"), first("print('hello')")],
    "PKG-004": [
        Package(requires=("slime-core",)),
        Package(requires=("slime-core>=0.1",)),
        Package(requires=("slime-core-extras>=0.1,<0.2",)),
    ],
    "PKG-005": [instead(', summary="1 when the response is short"', "")],
    "PKG-006": [
        instead("limit: int = 3", "limit: int"),
        instead("limit: int = 3", "limit: type = int"),
        instead(
            "Limits, summary",
            "lambda: create_model('Late', __base__=Limits, more=(int, 1)), summary",
            head="from pydantic import create_model",
        ),
    ],
    "PKG-007": [Package(readme="Rewards.")],
    "PKG-008": [
        first("open('state.txt', 'w').close()"),
        first("import subprocess, sys; subprocess.run([sys.executable, '-c', ''])"),
        first("import os; os.environ['SHORT'] = '1'"),
        first("import os; os.chdir('/')"),
        first("import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)"),
        first("import threading, time; threading.Thread(target=time.sleep, args=(1,), daemon=True).start()"),
        first(
            "import socket, contextlib\nwith contextlib.suppress(OSError): socket.create_connection(('127.0.0.1', 9))"
        ),
        first("import os\nif os.fork() == 0: os._exit(0)\nos.wait()"),
        first("import os; os.posix_spawnp('sleep', ['sleep', '600'], os.environ)"),
        first("import threading; threading.Thread(target=threading.Event().wait, args=(30,)).start()"),
        first("import sys; sys.setrecursionlimit(5000)"),
        first("import logging; logging.basicConfig(level=logging.DEBUG)"),
        first("import random; random.seed(0)"),
        first("import json; json.detect_encoding = json.load"),
        first("import os; os.umask(0o27)"),
        first("import slime_core.score; slime_core.score.Score.__repr__ = lambda self: 'mine'"),
        instead("    yield RewardSpec(", "    open('state.txt', 'w').close()\n    yield RewardSpec("),
    ],
    "PKG-009": [first("import time\nwhile time.process_time() < 3: pass")],
    "PKG-010": [
        instead("limit: int = 3", "api_key: str = ''"),
        instead("limit: int = 3", "password: str | None = None"),
    ],
    "PKG-011": [instead("    limit: int = 3", "    model_config = {'extra': 'allow'}\n    limit: int = 3")],
    "PKG-012": [
        instead(
            "    yield RewardSpec(",
            "    TIMES.append(1)\n    if len(TIMES) % 2: yield RewardSpec('sh', build, summary='a')\n"
            "    yield RewardSpec(",
            head="TIMES = []",
        )
    ],
    "PKG-014": [
        Package(source=MODULE.replace('"short"', '"math"'), readme="Offers math."),
        Package(source=MODULE.replace('"short"', '"random"'), readme="Offers random."),
        Package(source=f"{MODULE}\n\n{SHADOW}", readme="Offers short and single_turn."),
    ],
    "PKG-015": [
        Package(contracts=(("reward.shorter", "slime_testing.reward:RewardContract"),)),
        Package(contracts=(("reward.short", "slime_testing.engine_contract:EngineContract"),)),
        Package(contracts=(("reward.short", "reward_short:ShortContract"),)),
    ],
    "PKG-013": [
        instead("Limits, summary", "Limits, flat_keys=lambda: ('limits',), summary"),
        Package(
            source=MODULE.replace("limit: int = 3", "lr: float = 1.0").replace(
                "Limits, summary", "Limits, flat_keys=('lr',), summary"
            )
        ),
        instead(
            "@hookimpl",
            "@hookimpl\ndef slime_foreign_names():\n    yield ForeignName('lr', 'seed')\n\n\n@hookimpl",
            head="from slime_core.roles import ForeignName",
        ),
    ],
}
