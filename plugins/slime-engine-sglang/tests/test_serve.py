"""`slime engine serve --backend local`: SGLang's wire over HTTP, before the embedded engine."""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from fake_python import python_with
from on_the_fake import setup_at
from safetensors.numpy import load_file, save_file
from served import Answer, Serving, serving
from servers import stand_in

from slime_core.cli import run_cli
from slime_core.roles import Extra, GenerateOutput, GenerateRequest, SamplingParams
from slime_engine_sglang.engine import SglangEngine
from slime_engine_sglang.settings import SglangSettings
from slime_testing import publish_model, write_tiny_model
from tests.tables import table

PROMPT = [5, 6, 7]
LONG = {"input_ids": PROMPT, "sampling_params": {"max_new_tokens": 250, "ignore_eos": True}}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("serve") / "model")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Serving]:
    with serving(model, "--set", "workers=1") as found:
        yield found


def generated(server: Serving, **changes: Answer) -> Answer:
    asked = {"max_new_tokens": 12, "sampling_seed": 3, "ignore_eos": True}
    return server.ask("/generate", {"input_ids": PROMPT, "sampling_params": asked, "return_logprob": True, **changes})


def test_it_generates_from_ids_and_from_text(server: Serving) -> None:
    made = generated(server)
    assert made["meta_info"]["finish_reason"] == {"type": "length", "length": 12}
    assert [entry[1] for entry in made["meta_info"]["output_token_logprobs"]] == made["output_ids"]
    assert generated(server, input_ids=None, text="t5 t6 t7")["output_ids"] == made["output_ids"]
    several = generated(server, input_ids=[PROMPT, [9, 10]])
    assert several[0]["output_ids"] == made["output_ids"]
    assert several[1]["output_ids"] == generated(server, input_ids=[9, 10])["output_ids"]


def test_a_stream_tells_all_that_there_is_each_time(server: Serving) -> None:
    asked = {"max_new_tokens": 12, "sampling_seed": 3, "ignore_eos": True}
    events = server.events("/generate", {"input_ids": PROMPT, "sampling_params": asked, "stream": True})
    assert events[-1]["output_ids"] == generated(server)["output_ids"]
    for before, after in pairwise(events):
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
    assert [each["meta_info"]["finish_reason"] is None for each in events] == [True] * (len(events) - 1) + [False]


def test_a_text_is_scored_as_it_was_made(server: Serving) -> None:
    made = generated(server)
    text = [*PROMPT, *made["output_ids"]]
    read = generated(server, input_ids=text, sampling_params={"max_new_tokens": 0}, logprob_start_len=0)
    assert read["output_ids"] == []
    (first, *told) = read["meta_info"]["input_token_logprobs"]
    assert first == [None, PROMPT[0], None]
    assert [entry[1] for entry in told] == text[1:]
    own = [entry[0] for entry in made["meta_info"]["output_token_logprobs"]]
    assert [entry[0] for entry in told[2:]] == pytest.approx(own, abs=1e-5)


def test_a_stop_text_ends_it_and_is_trimmed_unless_it_is_kept(server: Serving) -> None:
    whole = generated(server)["text"]
    stop = whole.split()[4]
    asked = {"max_new_tokens": 12, "sampling_seed": 3, "ignore_eos": True, "stop": stop}
    trimmed, kept = (
        generated(server, sampling_params={**asked, "no_stop_trim": keeps})["text"] for keeps in (False, True)
    )
    assert stop not in trimmed
    assert kept.startswith(trimmed)
    assert kept.endswith(stop)


def in_the_background(ask: Callable[[], Answer]) -> tuple[threading.Thread, list[Answer]]:
    answers: list[Answer] = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    thread.start()
    return thread, answers


@table("body", [{"rid": "mine"}, {"abort_all": True}])
def test_an_abort_ends_what_is_held_with_what_there_is(server: Serving, body: dict[str, Any]) -> None:
    server.ask("/pause_generation", {"mode": "in_place"})
    thread, answers = in_the_background(lambda: server.ask("/generate", {**LONG, "rid": "mine"}))
    while not server.ask("/server_info")["internal_states"][0]["num_running_reqs"]:
        assert thread.is_alive()
    server.ask("/abort_request", {"rid": "another"})
    assert thread.is_alive()
    server.ask("/abort_request", body)
    thread.join(60)
    assert answers[0]["meta_info"]["finish_reason"]["type"] == "abort"
    server.ask("/continue_generation", {})
    assert len(generated(server)["output_ids"]) == 12


def test_new_weights_come_from_a_directory_and_have_a_name(server: Serving, model: Path, tmp_path: Path) -> None:
    other = write_tiny_model(tmp_path / "other")
    weights = load_file(other / "model.safetensors")
    save_file({name: each * 1.5 for name, each in weights.items()}, other / "model.safetensors")
    before = generated(server)
    server.ask("/update_weights_from_disk", {"model_path": str(other), "weight_version": "7"})
    after = generated(server)
    assert after["meta_info"]["weight_version"] == "7"
    assert after["meta_info"]["output_token_logprobs"] != before["meta_info"]["output_token_logprobs"]
    assert "no model directory" in server.refusal("/update_weights_from_disk", {"model_path": str(tmp_path / "no")})
    assert generated(server)["meta_info"]["weight_version"] == "7"
    server.ask("/update_weights_from_disk", {"model_path": str(model), "weight_version": "default"})
    assert generated(server)["output_ids"] == before["output_ids"]


@table(
    "body, said",
    [
        ({"input_ids": PROMPT, "text": "t5"}, "expected text or input_ids, one of them"),
        ({"input_ids": []}, "none of them empty"),
        ({"input_ids": ["t5"]}, "expected a list of ids"),
        ({"input_ids": [99]}, "ids outside of the model's, 0 to 63"),
        ({"input_ids": PROMPT, "sampling_params": {"max_new_token": 3}}, "Did you mean 'max_new_tokens'?"),
        ({"input_ids": PROMPT, "sampling_params": {"regex": "a"}}, "regex: this server does not do it"),
        ({"input_ids": PROMPT, "sampling_params": {"n": 2}}, "one response a request"),
        ({"input_ids": PROMPT, "sampling_params": {"temperature": -1}}, "temperature=-1; expected 0 or more"),
        ({"input_ids": PROMPT, "image_data": ["cat.png"]}, "image_data: this server gives tokens"),
        ({"input_ids": [PROMPT], "sampling_params": [{}, {}]}, "1 prompts with 2 sampling_params"),
    ],
)
def test_what_it_does_not_do_is_refused_by_name(server: Serving, body: dict[str, Any], said: str) -> None:
    assert said in server.refusal("/generate", body)


def test_it_says_what_it_is_and_is_well(server: Serving, model: Path) -> None:
    assert server.ask("/server_info")["model_path"] == str(model)
    assert server.ask("/model_info")["model_type"] == "llama"
    assert server.ask("/v1/models")["data"][0]["max_model_len"] == 256
    for path in ("/health", "/ready", "/health_generate"):
        assert server.ask(path) is None


def test_the_engine_sglang_takes_it_for_a_server(server: Serving, model: Path, tmp_path: Path) -> None:
    """With versions of weights, and log-probs of a text, as a run asks for them."""

    async def main() -> tuple[GenerateOutput, GenerateOutput]:
        setup = setup_at(tmp_path, model, eos_token_ids=frozenset({2}))
        engine = SglangEngine(SglangSettings.model_validate({"urls": [server.url]}), setup)
        try:
            await engine.start()
            for version in (0, 1):  # of 1 all weights are 0
                await engine.load_weights(await asyncio.to_thread(publish_model, model, tmp_path, version), version)
            zeros = await engine.generate(GenerateRequest(PROMPT, SamplingParams(4), 3))
            await engine.load_checkpoint()
            text = GenerateRequest(PROMPT, SamplingParams(0), 3, want=frozenset({Extra.PROMPT_LOG_PROBS}))
            return zeros, await engine.generate(text)
        finally:
            await engine.close()

    zeros, read = asyncio.run(main())
    assert zeros.weight_version == 1
    assert len(set(zeros.log_probs)) == 1
    assert read.extras is not None
    assert len(set(read.extras.prompt_log_probs or ())) == 2


def test_sglang_itself_is_served_and_ends_with_the_command(model: Path, tmp_path: Path) -> None:
    python = stand_in(tmp_path / "servers")
    with serving(model, "--backend", "sglang", "--set", f"python={python}", "--set", "deterministic=true") as served:
        argv = served.ask("/server_info")["argv"]
    assert argv[argv.index("--model-path") + 1] == str(model)
    assert "--enable-deterministic-inference" in argv
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.1", served.port)):
        pass


def refused(capsys: pytest.CaptureFixture[str], *options: object) -> str:
    assert run_cli(["engine", "serve", *map(str, options)]) == 2
    return " ".join(capsys.readouterr().err.split())


def test_what_cannot_be_served_is_one_paragraph(
    server: Serving, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = server.url.rpartition(":")[2]
    assert f"cannot listen at 127.0.0.1:{taken}: Address already in use; give" in refused(
        capsys, model, "--port", taken
    )
    assert "no model directory" in refused(capsys, tmp_path / "none")
    assert "no config.json" in refused(capsys, tmp_path)
    assert "Did you mean 'workers'?" in refused(capsys, model, "--set", "worker=1")
    assert "expected KEY=VALUE" in refused(capsys, model, "--set", "workers")


def test_what_sglang_cannot_serve_is_one_paragraph(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there, empty = python_with(tmp_path, "0.5.23"), python_with(tmp_path / "empty", None)
    sglang = (model, "--backend", "sglang", "--set")
    said = refused(capsys, *sglang, f"python={empty}")
    assert "there is no SGLang in" in said
    assert "pip install" in said
    assert "this starts one server" in refused(capsys, *sglang, "urls=['http://127.0.0.1:1']")
    misspelt = refused(capsys, *sglang, f"python={there}", "--set", "server.log_levl=info")
    assert "Did you mean 'log_level'?" in misspelt
