"""Invariants: what holds of a session's samples, whatever its agent did, held against the engine's own log.

I1 what the model was shown and said in a turn is in a sample as it was; I2 in its own context alone it is trained on;
I3 each token once, or its loss has a reason; I4 with the engine's log-probs and versions; I5 a turn goes on from
exactly what the last one was; I6 nobody else's words are trained on; I7 the order of what is asked at once changes
nothing; I8 nor does a request that is sent twice, or lost; I9 nor a second look, nor a request after the end.
"""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field

import pytest
from random_agent import FOREIGN, Agent, Turn
from random_engine import Made, RandomEngine

from slime_agent_openai.errors import ApiError
from slime_agent_openai.message import Message, Request, Role
from slime_agent_openai.samples import Outcome, samples_of
from slime_agent_openai.session import Session
from slime_agent_openai.task import Result
from slime_core import Sample, Status
from slime_testing import make_pending

END = "<|im_end|>"  # Of a turn, in all templates of these tests


@dataclass(slots=True)
class Ended:
    """A session that has ended."""

    session: Session
    engine: RandomEngine
    agent: Agent
    _: KW_ONLY
    appends: bool  # Whether its template leaves what came before as it was; else a turn may begin anew
    samples: list[Sample] = field(default_factory=list)

    def checked(self) -> Counter[str]:
        """All invariants hold; what it came to."""
        self.samples = samples_after(self.session, self.engine)
        tokens = require_exact(self.samples, self.engine)
        gone_on = require_prefixes(self.agent, appends=self.appends)
        require_shown(self.agent)
        if not self.session.exceeded_limit and not self.session.interrupted.is_set():
            # Else some of what was asked at once was answered and some was not.
            kept = [made for made in self.engine.log if not made.fate]
            assert len(kept) == len(self.agent.turns)  # I8: no request was answered twice
        counts = {"sessions": 1, "turns": len(self.agent.turns), "samples": len(self.samples)}
        return self.agent.counts + tokens + gone_on + Counter(counts, forks=self.session.forest.counts.forks)


def samples_after(session: Session, engine: RandomEngine) -> list[Sample]:
    """I9: the samples of a session that has ended, which a second look and another request leave as they are."""
    session.close()
    calls = len(engine.log)
    first = _samples(session, engine)
    with pytest.raises(ApiError, match=r"its sample (has ended|is run again)"):
        asyncio.run(session.reply(Request((Message(Role.USER, "Still there?"),))))
    assert len(engine.log) == calls
    assert session.interrupted.is_set() == (first[0].status is Status.ABORTED)
    assert [contents(each) for each in first] == [contents(each) for each in _samples(session, engine)]
    return first


def _samples(session: Session, engine: RandomEngine) -> list[Sample]:
    return samples_of(make_pending(prompt="17 + 25?"), session, Outcome(Result(1.0)), engine.tokenizer)


def require_exact(samples: Sequence[Sample], engine: RandomEngine) -> Counter[str]:
    """I1 to I4, and I6; returns tokens by what became of them."""
    kept = {made.output.log_probs[0]: made for made in engine.log if not made.fate}
    trained: Counter[Made] = Counter()
    for sample in samples:
        assert list(sample.problems()) == []
        trained.update(_trained(sample, kept, engine))
    assert trained == dict.fromkeys(kept.values(), 1)  # I3
    tokens: Counter[str] = Counter()
    for made in engine.log:
        tokens[f"tokens {made.fate or 'trained on'}"] += len(made.output.tokens)
    return tokens


def _trained(sample: Sample, kept: Mapping[float, Made], engine: RandomEngine) -> list[Made]:
    """Turns of the engine that a sample trains on: its runs of ones in the mask, each a whole turn in its context."""
    tokens, begin = tuple(sample.tokens), sample.prompt_length
    mask, log_probs = list(sample.loss_mask or ()), list(sample.rollout_log_probs or ())
    assert len(mask) == len(log_probs) == len(tokens) - begin == sample.response_length  # I4
    found: list[Made] = []
    words: list[int] = []
    place = begin
    while place < len(tokens):
        if not mask[place - begin]:
            assert log_probs[place - begin] == 0.0
            place += 1
            continue
        made = kept[log_probs[place - begin]]
        end = place + len(made.output.tokens)
        assert tokens[:place] == made.prompt  # I2
        assert tokens[place:end] == tuple(made.output.tokens)  # I1
        assert log_probs[place - begin : end - begin] == list(made.output.log_probs)  # I4
        assert set(mask[place - begin : end - begin]) == {1}
        words += made.output.tokens
        found.append(made)
        place = end
    assert sample.weight_versions == [str(version) for made in found for _, version in made.output.versions]  # I4
    assert FOREIGN not in engine.tokenizer.decode(words)  # I6
    return found


def require_prefixes(agent: Agent, *, appends: bool) -> Counter[str]:
    """I5, for all turns whose call of the engine is known."""
    counts: Counter[str] = Counter()
    for turn in agent.turns:
        asked, made = turn.asked, turn.answer.made
        if asked.base is None or asked.is_edited or asked.tools != asked.base.asked.tools:
            continue
        calls = [each.answer.made for each in _alike(agent.turns, asked.base)]
        if made is None or None in calls:
            continue
        goes_on = any(call is not None and made.prompt[: len(call.whole)] == call.whole for call in calls)
        counts["gone on" if goes_on else "begun anew"] += 1
        assert goes_on or not appends, asked
    return counts


def require_shown(agent: Agent) -> None:
    """What others said than the model, edits of its own words among it, is what the model was shown."""
    for turn in agent.turns:
        if (made := turn.answer.made) is not None:
            prompt = agent.engine.tokenizer.decode(made.prompt, skip_special_tokens=False)
            assert END * 2 not in prompt  # what the model wrote of its turn's end is not written again
            words = [said.text for said in turn.asked.messages if said.role is not Role.ASSISTANT]
            written = [*(said.text for said in turn.asked.messages), *_arguments(turn)]
            words += [FOREIGN] if any(FOREIGN in each for each in written) else []
            assert [each for each in words if each.strip() not in prompt] == [], turn.asked


def _arguments(turn: Turn) -> list[str]:
    return [call.arguments for said in turn.asked.messages for call in said.calls]


def _alike(turns: Sequence[Turn], base: Turn) -> list[Turn]:
    """Turns whose replies nobody who leaves reasoning and ids out could tell from this one."""
    said = base.answer.message
    if said.calls:
        return [base]
    return [turn for turn in turns if turn.answer.message.text.strip() == said.text.strip()]


def contents(sample: Sample) -> tuple[object, ...]:
    """All that is trained with, and by what."""
    return (
        tuple(sample.tokens),
        tuple(sample.loss_mask or ()),
        tuple(sample.rollout_log_probs or ()),
        tuple(sample.weight_versions),
        sample.status,
        sample.reward if isinstance(sample.reward, float) else None,
    )
