"""Custom generate functions: slime's calls, by HTTP or not, reach the run's own engine."""

import asyncio
from dataclasses import replace

import pytest

from slime_compat.adapters import SlimeGenerate
from slime_compat.settings import GenerateSettings
from slime_core import Sample, Status
from slime_core.errors import ContractError
from slime_core.roles import FinishReason, SamplingParams
from slime_testing import ScriptedEngine, make_pending
from tests.tables import table


def run(path: str, engine: ScriptedEngine | None = None, *, evaluation: bool = False) -> list[Sample]:
    engine = engine or ScriptedEngine()
    generator = SlimeGenerate(GenerateSettings(path=path))
    context = replace(engine.context(), evaluation=evaluation)
    return asyncio.run(generator(make_pending(prompt="ab"), context))


def test_router_posts_reach_the_engine(path: str) -> None:
    engine = ScriptedEngine()
    (sample,) = run(f"{path}custom_generate", engine)
    assert type(sample) is Sample
    assert not list(sample.problems())
    assert [call.prompt for call in engine.calls] == [(97, 98)]
    assert tuple(sample.tokens) == (97, 98, *engine.calls[0].output)
    assert sample.rollout_log_probs == [-0.25] * 4
    assert (sample.weight_versions, sample.status) == (["7"], Status.COMPLETED)


def test_finish_reason_is_returned(path: str) -> None:
    (sample,) = run(f"{path}custom_generate", ScriptedEngine(finish=FinishReason.LENGTH))
    assert sample.status is Status.TRUNCATED


@table("evaluation", [True, False])
def test_evaluation_argument_is_passed(path: str, *, evaluation: bool) -> None:
    (sample,) = run(f"{path}generate_that_is_told_of_evaluation", evaluation=evaluation)
    assert sample.metadata["evaluated"] is evaluation
    assert not list(sample.problems())


def test_function_may_return_several_samples(path: str) -> None:
    made = run(f"{path}generate_twice")
    assert len(made) == 2
    assert {sample.rollout_id for sample in made} == {0}
    assert not [problem for sample in made for problem in sample.problems()]


def test_concurrent_samples_have_separate_endpoints(path: str) -> None:
    generator = SlimeGenerate(GenerateSettings(path=f"{path}custom_generate"))
    engine = ScriptedEngine()

    async def together() -> list[list[Sample]]:
        prompts = [make_pending(prompt=chr(97 + number), index=number) for number in range(20)]
        return await asyncio.gather(*(generator(prompt, engine.context()) for prompt in prompts))

    for number, (sample,) in enumerate(asyncio.run(together())):
        assert sample.tokens[0] == 97 + number
        assert sample.response[0] == chr(97 + (97 + number) % 26)


def test_unsupported_sampling_is_refused(path: str) -> None:
    with pytest.raises(RuntimeError, match=r"answered 400: .*stop_regex not supported; supported: .*stop_token_ids"):
        run(f"{path}generate_with_a_stop_regex")
    with pytest.raises(RuntimeError, match=r"answered 400: .*repetition_penalty=3; expected over 0"):
        run(f"{path}generate_out_of_range")


def test_sampling_uses_sglang_names(path: str) -> None:
    engine = ScriptedEngine()
    generator = SlimeGenerate(GenerateSettings(path=f"{path}generate_with_much_sampling"))
    asyncio.run(generator(make_pending(prompt="a"), engine.context()))
    [call] = engine.calls
    assert call.sampling == SamplingParams(
        5, stop=("END", "\n"), min_p=0.1, repetition_penalty=1.2, logit_bias={65: 2.5}
    )


def test_a_response_without_log_probs_is_refused(path: str) -> None:
    with pytest.raises(ContractError, match="1 response tokens without rollout_log_probs"):
        run(f"{path}generate_without_log_probs")


def test_non_sample_result_is_refused(path: str) -> None:
    with pytest.raises(ContractError, match="returned NoneType; return a Sample"):
        run(f"{path}generate_nothing")
