"""Checks of what an engine says beyond tokens, and what it refuses, ENG-024 to 026 and 029, of `EngineContract`."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from unittest import SkipTest

from slime_core.catalog.checks import check_extras
from slime_core.errors import SlimeError
from slime_core.roles import EngineExtras, Extra, GenerateOutput, GenerateRequest, SamplingParams
from slime_testing._engine_runs import GREEDY, SAME_LOG_PROB, SAMPLED, EngineRuns, Load
from slime_testing._play import Play
from slime_testing.contract import check, require

NUCLEUS = replace(GREEDY, temperature=1.0, top_p=0.9)
LIKELIEST = 2
TRIES = 8
"""Seeds of which one makes a token."""
NOWHERE = "no-such-thing"
"""What no engine has: an adapter, a picture."""


class ExtrasChecks(EngineRuns):
    """Extras, media, adapters."""

    @check("ENG-024", needs=("ENG-001",))
    def test_it_gives_what_its_spec_says_and_refuses_the_rest(self) -> None:
        """Each `Extra` of `EngineSpec.gives` comes in its shape to who wants it; another one is refused by its name.

        A trainer reads them for the very tokens of the answer: one for each, in their order, and of this request.
        """
        given = sorted(self.spec.gives, key=lambda extra: extra.value)
        wants = [frozenset({extra}) for extra in Extra] + ([frozenset(given)] if given else [])
        asked = [
            GenerateRequest(self.prompts[number], NUCLEUS, 3, want=want, top_log_probs=LIKELIEST)
            for want in wants
            for number in range(2)
        ]

        async def use(play: Play) -> list[GenerateOutput | Exception]:
            return [await _answer(play, request) for request in asked]

        stride: set[int] = set()
        for request, answer in zip(asked, self._run(use), strict=True):
            if isinstance(answer, Exception):
                _require_refusal(answer, sorted(extra.value for extra in request.want - self.spec.gives))
                continue
            ignored = sorted(extra.value for extra in request.want - self.spec.gives)
            require(
                not ignored, f"the spec does not give {', '.join(ignored)}, and a request that wants it is answered"
            )
            check_extras("an answer", answer, request)
            _require_sense(answer.extras or EngineExtras(), answer)
            if answer.extras is not None and answer.extras.routed_experts is not None:
                stride.add(len(answer.extras.routed_experts) // (len(request.prompt) + len(answer.tokens) - 1))
        require(len(stride) < 2, f"routed_experts has {sorted(stride)} entries a token; expected one number for all")

    @check("ENG-025", needs=("ENG-001", "ENG-011", "ENG-012"))
    def test_an_answer_says_which_weights_made_which_of_its_tokens(self) -> None:
        """Where new weights come amid an answer, `extras.versions` has all of its tokens, oldest weights first.

        `weight_version` is then the oldest. An engine that ends what runs before it switches needs no spans.
        """

        async def use(play: Play, load: Load) -> list[GenerateOutput | BaseException]:
            running = await play.keep_busy(self.busy_tokens)
            await load(1)
            return [*await play.ends(running), await play.ask(GREEDY)]

        request = GenerateRequest(self.prompts[0], SamplingParams(self.busy_tokens), 0)
        *outputs, last = [end for end in self._run_with_weights(use) if isinstance(end, GenerateOutput)]
        for output in outputs:
            check_extras("an answer", output, request)
            strange = {version for _, version in output.versions} - {0, 1}
            require(not strange, f"versions 0 and 1 were loaded, an answer has tokens of {sorted(strange)}")
        spans = last.versions
        require({version for _, version in spans} == {1}, f"version 1 was loaded, a later answer has {spans}")

    @check("ENG-026", needs=("ENG-001",))
    def test_what_it_cannot_take_is_refused_by_name(self) -> None:
        """A picture or an adapter that it does not have is not left aside: the answer would be to another question.

        Raise a `SlimeError` that says "media" or "lora", or names what is missing; `GenerateRequest.besides` helps.
        """
        plain = GenerateRequest(self.prompts[0], GREEDY, 0)
        asked = [replace(plain, media={"image": [f"{NOWHERE}.png"]}), replace(plain, lora=NOWHERE), plain]

        async def use(play: Play) -> list[GenerateOutput | Exception]:
            return [await _answer(play, request) for request in asked]

        picture, adapter, after = self._run(use)
        for what, answer in (("media", picture), ("lora", adapter)):
            require(isinstance(answer, Exception), f"a request with {what} that it does not have was answered")
            assert isinstance(answer, Exception)
            _require_refusal(answer, [what, NOWHERE])
        require(isinstance(after, GenerateOutput), f"a request after those that it refused ended with {after!r}")

    @check("ENG-029", needs=("ENG-001", "ENG-003", "ENG-024"))
    def test_a_text_is_scored_as_it_was_made(self) -> None:
        """With `max_new_tokens = 0` and `PROMPT_LOG_PROBS` nothing is made, and the text's log-probs come all the same.

        They are those that the same weights gave the tokens when they made them: a teacher is asked so.
        """
        if Extra.PROMPT_LOG_PROBS not in self.spec.gives:
            raise SkipTest("the spec does not give prompt_log_probs")

        async def use(play: Play) -> tuple[GenerateOutput, GenerateOutput]:
            for seed in range(5, 5 + TRIES):
                made = await play.ask(SAMPLED, seed=seed)
                if len(made.tokens):
                    break
            else:
                raise SkipTest(f"all of {TRIES} answers ended without a token")
            text = [*self.prompts[0], *made.tokens]
            asked = GenerateRequest(text, SamplingParams(0), 0, want=frozenset({Extra.PROMPT_LOG_PROBS}))
            return made, await play.answer(asked)

        made, scored = self._run(use)
        require(not len(scored.tokens), f"max_new_tokens is 0, and {len(scored.tokens)} tokens were made")
        told = scored.extras.prompt_log_probs if scored.extras is not None else None
        require(told is not None, "a text to be scored, with max_new_tokens = 0, got no prompt_log_probs")
        assert told is not None
        check_extras("an answer", scored, GenerateRequest([*self.prompts[0], *made.tokens], SamplingParams(0), 0))
        pairs = zip(told[-len(made.tokens) :], made.log_probs, strict=True)
        apart = max(abs(one - other) for one, other in pairs)
        require(
            apart < SAME_LOG_PROB,
            f"log-probs of a text are up to {apart:.4f} nats from those that its tokens had when they were made",
        )


async def _answer(play: Play, request: GenerateRequest) -> GenerateOutput | Exception:
    try:
        return await play.answer(request)
    except Exception as error:
        return error


def _require_refusal(error: Exception, names: Sequence[str]) -> None:
    """A SlimeError that says one of some names; none of them, if there is nothing to refuse."""
    require(names, f"a request that wants what the spec gives raised {error!r}")
    named = isinstance(error, SlimeError) and any(name in str(error) for name in names)
    require(named, f"the error is not a SlimeError that says {' or '.join(names)}: {error!r}")


def _require_sense(extras: EngineExtras, output: GenerateOutput) -> None:
    """Columns that are of these tokens."""
    ids, offsets = extras.top_p_token_ids, extras.top_p_token_offsets
    if ids is not None and offsets is not None:
        places = zip(output.tokens, pairwise(offsets), strict=True)
        lost = [token for token, (begin, end) in places if token not in ids[begin:end]]
        require(not lost, f"tokens {lost[:3]} are not among those that top-p kept for them")
    for log_probs in (extras.prompt_log_probs, output.log_probs):
        wrong = [each for each in log_probs or () if each > 1e-6]
        require(not wrong, f"log-probs must be at most 0, found {wrong[:3]}")
    for likeliest in extras.top_log_probs or ():
        require(len(likeliest) <= LIKELIEST, f"{len(likeliest)} of the likeliest tokens; {LIKELIEST} were asked for")
        falling = [log_prob for _, log_prob in likeliest]
        require(falling == sorted(falling, reverse=True), f"the likeliest tokens have log-probs {falling}")
