"""The examples of the documentation are run, so that they stay true."""

import ast
import asyncio
import dataclasses
import http.server
import importlib.util
import json
import re
import subprocess
import sys
import textwrap
import threading
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from slime_core import API_VERSION, Sample, Score
from slime_core.catalog import Catalog
from slime_core.config import parse_config
from slime_core.roles import Engine, PluginSet, RewardContext, RewardSpec, Setup
from slime_train import plugin as of_train

DOCS = Path(__file__).resolve().parent.parent / "docs"


def loaded(path: Path) -> ModuleType:
    """A module from a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


transcripts = loaded(DOCS.parent / "tools" / "transcripts.py")


def fenced(page: str, title: str) -> str:
    """The code block of that title on a page of the documentation."""
    text = (DOCS / page).read_text("utf-8")
    (block,) = re.findall(rf'^```\w+ title="{re.escape(title)}"\n(.*?)^```', text, re.MULTILINE | re.DOTALL)
    return str(block)


def test_the_plugin_of_the_guide_scores_a_sample(tmp_path: Path) -> None:
    path = tmp_path / "slime_reward_exact.py"
    path.write_text(fenced("plugins.md", path.name), "utf-8")
    (offered,) = slime_rewards_of(path)
    assert isinstance(offered, RewardSpec)
    reward = offered.factory(offered.settings(), Setup(make=_makes_nothing, seed=0))
    ctx = RewardContext(rollout_id=0, evaluation=False, seed=0)
    assert asyncio.run(reward(Sample(response=" 42\n", label="42"), ctx)) == Score(1.0)
    assert asyncio.run(reward(Sample(response="41", label="42"), ctx)) == Score(0.0)


def slime_rewards_of(path: Path) -> list[RewardSpec]:
    """What a plugin in a file offers."""
    plugin = loaded(path)
    assert plugin.SLIME_API == API_VERSION
    return list(plugin.slime_rewards())


def _makes_nothing(role: str, name: str, **settings: object) -> object:
    raise AssertionError(f"the example asks for no other choice, yet it asked for {role} {name}")


def test_the_run_file_of_the_guide_selects_the_reward() -> None:
    assert tomllib.loads(fenced("plugins.md", "run.toml")) == {"reward": {"use": {"exact": 1.0}}}


def test_the_module_of_the_tutorial_is_the_examples() -> None:
    module = DOCS.parent / "examples" / "slime-generator-calculator" / "slime_generator_calculator" / "plugin.py"
    assert fenced("tutorial.md", f"{module.parent.name}/{module.name}") == module.read_text("utf-8")


def test_the_wrapping_reward_of_the_tutorial_takes_off_what_length_costs(tmp_path: Path) -> None:
    path = tmp_path / "slime_reward_brief.py"
    path.write_text(fenced("tutorial.md", path.name), "utf-8")
    (registered,) = slime_rewards_of(path)
    settings = registered.model.model_validate({"price": 0.25})
    reward = registered.factory(settings, Setup(make=_makes_exact, seed=0))
    ctx = RewardContext(rollout_id=0, evaluation=False, seed=0)
    verdict = asyncio.run(reward(Sample(response="42", label="42"), ctx))
    assert verdict == Score(0.5, {"inner": 1.0, "cost": 0.5})


def _makes_exact(role: str, name: str, **settings: object) -> object:
    assert (role, name) == ("reward", "math")

    async def exact(sample: Sample, ctx: RewardContext) -> Score:
        return Score(float(sample.response == sample.label))

    return exact


def test_the_judge_of_the_recipes_asks_a_server(tmp_path: Path) -> None:
    path = tmp_path / "judge.py"
    path.write_text(fenced("recipes.md", path.name), "utf-8")
    (offered,) = slime_rewards_of(path)
    ctx = RewardContext(rollout_id=0, evaluation=False, seed=0)

    class Server(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # as the library calls it
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"score": 0.5} if asked["response"] == "4" else {}).encode())

        def log_message(self, format: str, *arguments: object) -> None: ...  # noqa: A002

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = offered.model.model_validate({"url": f"http://127.0.0.1:{server.server_port}/score"})
        judge = offered.factory(settings, Setup(make=_makes_nothing, seed=0))
        assert asyncio.run(judge(Sample(response="4"), ctx)) == Score(0.5)
        assert asyncio.run(judge(Sample(response="5"), ctx)).reason == "judge_unclear"
        server.shutdown()
    away = asyncio.run(judge(Sample(response="4"), ctx))
    assert (away.reason, away.retryable) == ("judge_unreachable", True)


def test_the_pool_of_the_recipes_scores_off_the_loop(tmp_path: Path) -> None:
    path = tmp_path / "pooled.py"
    path.write_text(fenced("recipes.md", path.name), "utf-8")
    (offered,) = slime_rewards_of(path)
    reward = offered.factory(offered.model(), Setup(make=_makes_nothing, seed=0))
    ctx = RewardContext(rollout_id=0, evaluation=False, seed=0)
    assert asyncio.run(reward(Sample(response="a b", label="b c"), ctx)) == Score(0.5)


def test_the_engine_of_the_recipes_passes_everything_on(tmp_path: Path) -> None:
    path = tmp_path / "counted.py"
    path.write_text(fenced("recipes.md", path.name), "utf-8")
    module = loaded(path)
    (offered,) = module.slime_engines()
    assert (offered.model, offered.transports) == (module.LOCAL.model, module.LOCAL.transports)

    class Inner:
        async def generate(self, request: object) -> object:
            return request

    engine = module.Counted(Inner())
    assert isinstance(engine, Engine)
    assert asyncio.run(engine.generate("asked")) == "asked"
    assert engine.requests == 1
    registered = Catalog.discover(PluginSet(only=("slime-local",), modules=("./counted.py",), root=tmp_path))
    assert registered.find("engine", "counted").spec.name == "counted"


def test_the_fields_that_the_page_of_samples_names_are_fields() -> None:
    page = (DOCS / "samples.md").read_text("utf-8")
    table = page.partition("| who |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([a-z_]+)`", table))
    assert named <= {field.name for field in dataclasses.fields(Sample)}


def test_the_reference_pages_are_what_the_sources_say() -> None:
    ran = subprocess.run(
        [sys.executable, DOCS.parent / "tools" / "role_pages.py"], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout


PYTHON = re.compile(r"^ *```python[^\n]*\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def test_every_example_in_python_is_python() -> None:
    read, wrong = 0, []
    for page in (DOCS.parent / "README.md", *sorted(DOCS.rglob("*.md"))):
        text = page.read_text("utf-8")
        for block in PYTHON.finditer(text):
            read += 1
            try:
                ast.parse(textwrap.dedent(block[1]))
            except SyntaxError as error:
                line = text.count("\n", 0, block.start(1)) + (error.lineno or 1)
                wrong.append(f"{page.relative_to(DOCS.parent)}:{line}: {error.msg}")
    assert read
    assert not wrong, "\n".join(wrong)


def test_every_estimator_loss_and_correction_of_slime_train_is_documented_with_its_settings() -> None:
    text = (DOCS / "algorithms.md").read_text("utf-8")
    for specs in (of_train.slime_advantages(), of_train.slime_losses(), of_train.slime_corrections()):
        for spec in specs:
            assert f"| `{spec.name}` |" in text
            for setting in spec.model.model_fields:
                assert f"`{setting}`" in text, (spec.name, setting)


def test_the_run_file_of_the_algorithms_page_chooses_what_it_says() -> None:
    config = parse_config(
        {
            **tomllib.loads(fenced("algorithms.md", "algorithm.toml")),
            "prompt_data": "a.jsonl",
            "hf_checkpoint": "m",
            "save": "r",
            "num_rollout": 1,
            "reward": {"use": "math"},
        }
    )
    assert config.roles["advantage"].use == {"reinforce_plus_plus_baseline": 1.0}
    assert config.roles["loss"].sections == {"gspo": {"eps_clip": 3e-4, "eps_clip_high": 4e-4}}
    assert config.roles["correction"].use == {"icepop": 1.0}


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="tracebacks are drawn otherwise")
def test_every_transcript_of_a_command_is_what_it_prints() -> None:
    tool = DOCS.parent / "tools" / "transcripts.py"
    ran = subprocess.run([sys.executable, tool], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_no_command_is_shown_with_an_output_that_nobody_runs() -> None:
    for page in transcripts.pages():
        for block in transcripts.blocks(page.read_text("utf-8")):
            assert block.transcript or not (block.kind == "console" and block.shows_output), page
