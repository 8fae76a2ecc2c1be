"""`slime generate`: prompts from everywhere, samples, stops, clear errors."""

import asyncio
import io
import json
import shutil
from pathlib import Path

import pytest

from slime_core.data import HfTokenizer
from slime_core.errors import WorkerError
from slime_core.roles import FinishReason, GenerateOutput, GenerateRequest, SamplingParams
from slime_local.generate import PromptBatch, responses
from slime_testing import CharTokenizer
from tests.conftest import Project, Slime
from tests.rollout.bench import Idle
from tests.tables import table

OLD = '{"response": "an answer of yesterday"}\n'
FED = """
from slime_core import Settings
from slime_core.roles import EngineSpec


class Own(Settings):
    url: str


class Fed:
    pass


FED = EngineSpec("fed", lambda settings, setup: Fed(), Own, transports=("shared-buffer",))
"""


def test_prompts_of_a_file_are_answered_in_order_and_again_the_same(project: Project, slime: Slime) -> None:
    rows = [{"input": "2+3?"}, {"input": [{"role": "user", "content": "4+4?"}]}, {"input": "9"}]
    Path("p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    flags = ["--n-samples-per-prompt", 3, "--max-new-tokens", 9, "--no-skip-special-tokens"]
    found = []
    for name in ("a.jsonl", "b.jsonl"):
        ran = slime.ok("generate", project.model, "--prompt-data", "p.jsonl", *flags, "--out", name)
        assert "9 responses" in ran.out
        found.append([json.loads(line) for line in Path(name).read_text().splitlines()])
    first, again = found
    assert first == again
    assert [row["sample"] for row in first] == [0, 1, 2] * 3
    assert first[0]["prompt"] == "2+3?"
    assert "4+4?" in first[3]["prompt"] != "4+4?"  # rendered
    assert len({row["response"] for row in first}) > 3
    assert all(len(row["tokens"]) == len(row["log_probs"]) <= 9 for row in first)


def test_a_stop_text_is_cut_off_unless_it_is_asked_for(project: Project, slime: Slime) -> None:
    ran = slime.ok("generate", project.model, "abc", "--max-new-tokens", 40, "--temperature", 0, "--ignore-eos")
    text = ran.out.removesuffix("\n")
    escapes = "\ufffd\\u0123456789abcdef"  # control characters are shown as \u0007
    stop = next(each for each in text[3:] if each.isprintable() and each not in escapes)
    flags = ["--max-new-tokens", 40, "--temperature", 0, "--ignore-eos", "--stop", stop]
    cut = slime("generate", project.model, "abc", *flags)
    whole = slime("generate", project.model, "abc", *flags, "--no-stop-trim")
    assert cut.out.removesuffix("\n") == text[: text.index(stop)]
    assert whole.out.startswith(text[: text.index(stop) + 1])


def test_a_run_answers_with_its_newest_checkpoint(project: Project, slime: Slime) -> None:
    assert slime("train", "run.toml", "--num-rollout", 1).code == 0
    answers = [
        slime("generate", where, "2+2", "--max-new-tokens", 5, "--logit-bias", "7=100").out
        for where in ("runs/run", "runs/run/checkpoints/rollout_000001", "runs/run/checkpoints/rollout_000001/hf")
    ]
    assert answers[0]
    assert len(set(answers)) == 1


def test_settings_of_the_engine_and_bf16_reach_it(project: Project, slime: Slime) -> None:
    answers = []
    for flags in (["--set", "workers=1"], ["--set", "workers=3"], ["--bf16"]):
        slime.ok("generate", project.model, "2+2", "--max-new-tokens", 5, "--ignore-eos", *flags, "--out", "o.jsonl")
        [row] = map(json.loads, Path("o.jsonl").read_text().splitlines())
        answers.append(row["log_probs"])
    assert answers[0] == answers[1] != answers[2]


@table(
    "arguments, message",
    [
        (["nowhere", "x"], "no model in nowhere: it does not exist"),
        (["MODEL"], "there are no prompts"),
        (["MODEL", "x", "--prompt-data", "p.jsonl"], "not both"),
        (["MODEL", "--prompt-data", "missing.jsonl"], "missing.jsonl"),
        (["MODEL", "x", "--top-p", "3"], "top_p=3.0; expected over 0"),
        (["MODEL", "x", "--logit-bias", "five"], "expected ID=BIAS"),
        (["MODEL", "x", "--logit-bias", "99999=1"], "logit_bias has token ids [99999]"),
        (["MODEL", "x", "--engine", "locl"], "local"),
        (["MODEL", "x", "--out", "no/such/folder.jsonl"], "create it with mkdir -p"),
        (["MODEL", "x", "--out", "."], "--out . is a folder"),
        (["MODEL", "x", "--set", "wrokers=1"], "unknown setting engine.local.wrokers. Did you mean 'workers'?"),
        (["MODEL", "x", "--set", "workers=none"], "engine.local.workers = 'none': input should be a valid integer"),
        (["MODEL", "x", "--set", "workers"], "--set workers: expected KEY=VALUE, such as workers=1"),
        (["MODEL", "x", "--engine", "./mine.py:FED"], "engine './mine.py:FED' needs url: pass --set url=VALUE"),
        (
            ["MODEL", "x", "--engine", "./mine.py:FED", "--set", "url=http://x", "--bf16"],
            "does not support bf16",
        ),
        (["MODEL", "x", "--engine", "./mine.py:FED", "--set", "url=http://x"], "receives weights only from a trainer"),
    ],
)
def test_bad_input_is_said(
    project: Project, slime: Slime, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    """And what was in the file of --out stays as it was."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    Path("mine.py").write_text(FED)
    Path("o.jsonl").write_text(OLD)
    out = [] if "--out" in arguments else ["--out", "o.jsonl"]
    ran = slime("generate", *[str(project.model) if each == "MODEL" else each for each in arguments], *out)
    assert ran.code != 0
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert Path("o.jsonl").read_text() == OLD
    assert not Path("o.jsonl.part").exists()


POSITIONS = 256


def length(project: Project, text: str) -> int:
    return len(HfTokenizer.load(project.model).encode(text))


@pytest.mark.parametrize("key", ["max_position_embeddings", "n_positions"])
def test_a_prompt_that_leaves_no_room_is_refused_by_number(project: Project, slime: Slime, key: str) -> None:
    shutil.copytree(project.model, "model")
    config = json.loads(Path("model/config.json").read_text())
    del config["max_position_embeddings"]
    Path("model/config.json").write_text(json.dumps(config | {key: POSITIONS}))
    texts = ["2+3?", "1+" * POSITIONS, "1+" * 2 * POSITIONS]
    project.write_rows("p.jsonl", [{"input": text} for text in texts])
    Path("o.jsonl").write_text("old")
    refusal = slime.refused("generate", "model", "--prompt-data", "p.jsonl", "--out", "o.jsonl")
    assert f"prompt 1 has {length(project, texts[1])} tokens (and 1 more are too long)" in refusal
    assert f"the model has {POSITIONS} positions" in refusal
    assert Path("o.jsonl").read_text() == "old"


@table("out", [[], ["--out", "o.jsonl"]])
def test_responses_that_are_cut_short_are_said(project: Project, slime: Slime, out: list[str]) -> None:
    flags = ["--n-samples-per-prompt", 2, "--ignore-eos", *out]
    ran = slime.ok("generate", project.model, "abc", "--max-new-tokens", 300, *flags)
    taken = length(project, "abc")
    assert (
        f"cut short by the model's {POSITIONS} positions: 2 responses, the first: prompt 0 sample 0 has "
        f"{POSITIONS - taken} of 300 tokens after a prompt of {taken}\n"
    ) in ran.err
    fits = slime("generate", project.model, "abc", "--max-new-tokens", POSITIONS - taken, *flags)
    assert "cut short" not in fits.err


class Dies(Idle):
    """Answers with the last letter of the prompt; an x kills it, and a w is never answered."""

    running = 0

    async def generate(self, request: GenerateRequest) -> GenerateOutput:
        self.running += 1
        letter = chr(request.prompt[-1])
        try:
            for _ in range(19 if letter == "x" else 1):
                await asyncio.sleep(0)
            if letter == "x":
                raise WorkerError("engine 0 died")
            if letter == "w":
                await asyncio.Event().wait()
            return GenerateOutput([ord(letter), 0], [-0.5, -0.5], FinishReason.STOP, 0)
        finally:
            self.running -= 1


def test_an_engine_that_dies_ends_the_other_requests_after_the_answers_before_them() -> None:
    engine, found, tokenizer = Dies(), list[str](), CharTokenizer()
    batch = PromptBatch([tokenizer.encode(prompt) for prompt in ("pa", "px", "pw")], SamplingParams(8), 1, 0)

    async def read() -> None:
        async for each in responses(engine, tokenizer, batch):
            found.append(each.text)  # what came before the error is wanted, too

    async def go() -> None:
        with pytest.raises(WorkerError, match="engine 0 died"):
            await read()
        assert (found, engine.running, len(asyncio.all_tasks())) == (["a"], 0, 1)

    asyncio.run(go())
