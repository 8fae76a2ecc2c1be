"""The generator as a run calls it: real agents in real processes, against an engine that says what it is told."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from chat import load_chat
from cloud import Cloud
from run_generator import generated
from talker import Talker

from slime_agent_openai.gateway import Gateway
from slime_agent_openai.generator import AgentGenerator
from slime_agent_openai.plugin import slime_generators
from slime_agent_openai.session import SessionLimits
from slime_agent_openai.workers import Workers
from slime_core import Sample, Status
from slime_core.data import HfTokenizer
from slime_core.errors import ConfigError
from slime_core.roles import FinishReason, GenerateOutput, Setup, StartsAndStops
from slime_core.sample import Json
from slime_testing import make_pending
from tests.tables import table

HERE = Path(__file__).parent


def play(
    talker: Talker,
    agent: str,
    *prompts: str,
    parser: str = "auto",
    seconds: float = 20.0,
    limits: SessionLimits | None = None,
    label: Json = None,
    **context: object,
) -> list[list[Sample]]:
    """The samples of some prompts, all at once."""
    agents = Workers(f"{HERE}/chat_agents.py:{agent}", workers=1, agents_per_worker=16, memory_mb=2048)
    limits = limits or SessionLimits()
    generator = AgentGenerator(agents, Gateway(), limits, parser=parser, seconds=seconds)
    made = generated(generator, talker, *(make_pending(prompt=each, label=label) for each in prompts), **context)
    for samples in made:
        assert not [problem for sample in samples for problem in sample.problems()]
    return made


@table("first", ["long", "short"])
def test_main_sample_does_not_depend_on_timing(tokenizer: HfTokenizer, first: str) -> None:
    class Ordered(Talker):
        """Whose last two replies end in the order that the test says."""

        async def generate(self, prompt: Sequence[int], *given: object, **named: object) -> GenerateOutput:
            mine = "short" if "short" in self.tokenizer.decode(prompt) else "long"
            if len(self.log):
                both.append(mine)
                while len(both) < 2 or (mine != first and len(self.log) < 2):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            return await super().generate(prompt, *given, **named)  # type: ignore[arg-type]

    both: list[str] = []
    (made,) = play(Ordered(tokenizer, lambda text, turn: "Hm."), "ends_with_two_at_once", "long")
    (main,) = [sample for sample in made if sample.metadata["main"]]
    assert tokenizer.decode(main.tokens).count("Hm.") == 2


def test_sub_agent_reward_defaults_to_the_whole(talker: Talker) -> None:
    (made,) = play(talker, "has_sub_agents", "17 + 25?")
    rewards = {sample.metadata.get("agent", "main"): sample.reward for sample in made}
    assert rewards == {"scout": 0.25, "clerk": 1.0, "main": 1.0}


def test_turn_rewards_are_at_reply_ends(talker: Talker) -> None:
    ((sample,),) = play(talker, "rewards_turns", "17 + 25?", label=[0.25, -1])
    assert (sample.status, sample.reward, sample.metadata["seen"]) == (Status.COMPLETED, 0.5, ["17", 25])
    first = len(talker.log[0].output)
    assert sample.metadata["turn_rewards"] == [[first, 0.25], [sample.response_length, -1.0]]
    response = list(sample.tokens)[sample.prompt_length :]
    assert response[:first] == list(talker.log[0].output)


def test_wrong_number_of_turn_rewards_fails_the_sample(talker: Talker) -> None:
    ((sample,),) = play(talker, "rewards_turns", "17 + 25?", label=[0.25])
    assert (sample.status, sample.failure_reason, sample.reward) == (Status.FAILED, "agent_turn_rewards", None)
    assert "the agent returned 1 turn_rewards, [0.25]; its main conversation has 2 replies" in str(
        sample.metadata["failure_detail"]
    )
    assert "turn_rewards" not in sample.metadata


def test_agent_exception_fails_the_sample_and_keeps_tokens(talker: Talker) -> None:
    ((sample,),) = play(talker, "raises_after_a_turn", "17 + 25?")
    assert (sample.status, sample.failure_reason, sample.reward) == (Status.FAILED, "agent_KeyError", None)
    assert "no such river" in str(sample.metadata["failure_detail"])
    assert sample.effective_response_length == len(talker.log[0].output)


def test_agent_without_requests_fails(talker: Talker) -> None:
    ((sample,),) = play(talker, "asks_nothing", "17 + 25?")
    assert (sample.status, sample.failure_reason) == (Status.FAILED, "agent_asked_nothing")
    assert "base_url = task.openai_base_url" in str(sample.metadata["failure_detail"])


def test_turn_limit_or_cut_reply_truncates_the_sample(talker: Talker) -> None:
    ((sample,),) = play(talker, "two_turns", "17 + 25?", limits=SessionLimits(max_turns=1))
    assert (sample.status, sample.failure_reason, sample.reward) == (Status.TRUNCATED, None, 0.0)
    assert len(talker.log) == 1

    ((sample,),) = play(talker, "one_turn", "17 + 25?", max_new_tokens=2)
    assert (sample.status, sample.reward) == (Status.TRUNCATED, 1.0)


def test_interrupted_session_aborts_the_sample(talker: Talker) -> None:
    talker.finish = FinishReason.ABORT
    ((sample,),) = play(talker, "insists", "17 + 25?", seconds=1000.0)
    assert (sample.status, sample.reward) == (Status.ABORTED, None)


def test_tools_without_a_parser_end_the_run(tmp_path: Path) -> None:
    wordless = load_chat(tmp_path / "wordless", "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    with pytest.raises(ConfigError, match=r'parser = "hermes"') as caught:
        play(Talker(wordless, lambda text, turn: "42"), "offers_tools", "17 + 25?", seconds=1000.0)
    assert f"the chat template of {tmp_path}/wordless" in str(caught.value)


def test_wrong_parser_ends_the_run_if_tools_are_offered(
    talker: Talker,
) -> None:
    with pytest.raises(ConfigError, match=r'parser = "glm" does not read the calls') as caught:
        play(talker, "offers_tools", "17 + 25?", parser="glm", seconds=1000.0)
    assert "It writes '<tool_call>" in str(caught.value)
    assert 'which parser = "hermes" reads' in str(caught.value)
    ((sample,),) = play(talker, "one_turn", "17 + 25?", parser="glm")  # of calls, if none is to be read, nobody cares
    assert sample.status is Status.COMPLETED


def test_agent_lost_with_its_process_runs_again(talker: Talker) -> None:
    begun: list[int] = []
    ((exited,), (other,)) = play(
        talker,
        "asks_and_may_exit",
        "exit",
        "17 + 25?",
        seconds=30.0,
        limits=SessionLimits(max_turns=1),
        max_turns=1,
        restart=lambda: begun.append(len(talker.log)),
    )
    assert (exited.status, exited.failure_reason) == (Status.FAILED, "agent_exit_3")
    assert (other.status, other.reward) == (Status.COMPLETED, 1.0)  # its second session's turns are counted from zero
    assert len(begun) == 2
    assert begun[0] == 2
    names = [(asked.prompt, asked.turn) for asked in talker.log]
    assert sorted(names[:2]) == sorted(names[2:])  # so that the engine says what it would have said


def test_building_a_generator_starts_nothing() -> None:
    given: dict[str, dict[str, object]] = {
        "agent": {"agent": f"{HERE}/chat_agents.py:one_turn"},
        "agent_cli": {"command": ["true"]},
        "agent_fleet": {"token": "$env:PATH"},
        "agent_remote": Cloud("http://127.0.0.1:9").settings(),
        "verifiers": {"environment": f"{HERE}/some_environments.py"},
    }
    for spec in slime_generators():
        made = spec.factory(spec.model.model_validate(given[spec.name]), Setup(None, seed=0))  # type: ignore[arg-type]
        assert isinstance(made, StartsAndStops)
