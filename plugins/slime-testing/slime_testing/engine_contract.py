"""EngineContract: the requirements on every engine, ENG-001 to ENG-029.

Example:

    class TestMine(EngineContract):
        choice = "slime-engine-mine/mine"

        def make_setup(self, scratch):                # a small model, and a launcher for its processes
            return EngineSetup(self.make, 1, hf_checkpoint=MODEL, eos_token_ids=frozenset({2}),
                               launcher=make_launcher(scratch), scratch=scratch)

        def publish(self, setup, version):            # weights that differ between versions
            ...

Every check starts a separate engine with weights of version 0, and closes it. With `fresh = False` the checks share one
engine, except for the checks that close it.
"""

import asyncio
import inspect
import tempfile
from pathlib import Path
from unittest import SkipTest

from slime_core.errors import SlimeError, WorkerError
from slime_core.roles import FinishReason, GenerateOutput, SamplingParams
from slime_testing._engine_answers import ExtrasChecks, SamplingChecks, StreamingChecks
from slime_testing._engine_runs import ONE, SAME_LOG_PROB, SAMPLED, Load, Play, Served
from slime_testing.calling import SETTLE_S, Held, held, settled
from slime_testing.contract import check, require
from slime_testing.role import require_methods

METHODS = ("start", "load_weights", "generate", "abort", "close")
EARLY = 8
"""Number of requests before an abort, each sent one loop iteration after the last."""
ROUNDS = 3
"""How many rounds may end because the engine finishes before the abort."""


class EngineContract(SamplingChecks, StreamingChecks, ExtrasChecks):
    """Inherit, name the engine, and define its setup and how to publish weights to it."""

    @check("ENG-001")
    def test_the_factory_builds_an_engine(self) -> None:
        """The object has every method of `slime_core.roles.Engine`, each an `async def`; the factory starts nothing."""
        with tempfile.TemporaryDirectory() as scratch:
            setup = self.make_setup(Path(scratch))
            before = held()
            built: object = self._build(setup)
            left = held() - before
            asyncio.run(setup.launcher.close())
        require_methods(built, METHODS)
        plain = [name for name in METHODS if not inspect.iscoroutinefunction(getattr(built, name))]
        require(not plain, f"{type(built).__name__} has a plain `def` for {', '.join(plain)}; write `async def`")
        require(not left, f"the factory leaves {left.told()}; do that in start()")

    @check("ENG-002")
    def test_it_lists_its_transports(self) -> None:
        """`EngineSpec.transports` lists transport names, best first: without one, no trainer can send it weights."""
        transports: tuple[object, ...] = tuple(self.spec.transports)
        require(transports, "transports is empty")
        wrong = [each for each in transports if not isinstance(each, str)]
        require(not wrong, f"transports holds {wrong}; expected names of transports, or ANY_RECEIVER")

    @check("ENG-011", needs=("ENG-001",))
    def test_new_weights_take_effect_at_once(self) -> None:
        """After `load_weights`, answers have the new version and come from it: flush caches, reload every worker."""

        async def use(play: Play, load: Load) -> list[GenerateOutput]:
            before = await play.ask(ONE)
            await load(1)
            return [before, *await asyncio.gather(*(play.ask(ONE) for _ in range(8)))]

        before, *after = self._run_with_weights(use)
        require(before.weight_version == 0, f"version 0 is loaded, the output says {before.weight_version!r}")
        wrong = {output.weight_version for output in after} - {1}
        require(not wrong, f"version 1 was loaded, outputs say {sorted(wrong)}")
        old = sum(abs(output.log_probs[0] - before.log_probs[0]) < SAME_LOG_PROB for output in after)
        require(old == 0, f"{old} of {len(after)} outputs after the switch have the log-prob of the old weights")

    @check("ENG-012", needs=("ENG-001",))
    def test_weights_can_be_loaded_during_generation(self) -> None:
        """An asynchronous run loads weights at any time: running requests finish, with either version."""

        async def use(play: Play, load: Load) -> list[GenerateOutput | BaseException]:
            running = await play.keep_busy(self.busy_tokens)
            await load(1)
            return await play.ends(running)

        ends = self._run_with_weights(use)
        wrong = [end for end in ends if not (isinstance(end, GenerateOutput) and end.weight_version in (0, 1))]
        require(not wrong, f"{len(wrong)} of {len(ends)} requests under way ended with {wrong[:1]}")

    @check("ENG-013", needs=("ENG-001",))
    def test_an_abort_returns_the_tokens_so_far(self) -> None:
        """Every running request returns at once, with its tokens so far and finish ABORT; the engine stays usable.

        If the engine finishes before the abort, set a larger `busy_tokens`.
        """

        async def use(play: Play) -> tuple[list[GenerateOutput | BaseException], GenerateOutput]:
            ends: list[GenerateOutput | BaseException] = []
            for _ in range(ROUNDS):
                running = await play.keep_busy(self.busy_tokens)
                await play.limited(play.engine.abort(), "abort()")
                ends += await play.ends(running)
                if any(isinstance(end, GenerateOutput) and end.finish is FinishReason.ABORT for end in ends):
                    break
            return ends, await play.ask(SAMPLED)

        ends, after = self._run(use)
        raised = [end for end in ends if isinstance(end, BaseException)]
        require(not raised, f"{len(raised)} of {len(ends)} requests were aborted and raised {raised[:1]}")
        aborted = [end for end in ends if isinstance(end, GenerateOutput) and end.finish is FinishReason.ABORT]
        require(aborted, f"abort() was called on {len(ends)} requests under way, none has finish ABORT")
        agree = all(len(each.tokens) == len(each.log_probs) for each in aborted)
        require(agree, "an aborted response does not have as many log-probs as tokens")
        require(after.finish is not FinishReason.ABORT, "a request after abort() was aborted, too")

    @check("ENG-014", needs=("ENG-001",))
    def test_a_cancelled_request_ends(self) -> None:
        """Cancelling `generate` ends its tasks: abort the request on the server by its id, or requests pile up."""

        async def use(play: Play) -> tuple[int, int, int]:
            await play.ask(ONE)
            before = asyncio.all_tasks()
            asked = await play.keep_busy(self.busy_tokens)
            return await self._cancelled(play, asked, before)

        going_on, tasks, running = self._run(use)
        require(going_on == 0, f"{going_on} calls of generate() go on {SETTLE_S:g} s after they were cancelled")
        require(tasks == 0, f"{tasks} tasks are left {SETTLE_S:g} s after the requests were cancelled")
        require(running == 0, f"{running} requests are running {SETTLE_S:g} s after they were cancelled")

    @check("ENG-015", needs=("ENG-001",))
    def test_close_frees_everything_and_can_be_repeated(self) -> None:
        """A run always closes its engine, even unstarted or twice: end processes, sockets and tasks."""
        before = held()

        async def close(play: Play) -> int:
            for _ in range(2):
                await play.limited(play.engine.close(), "close()")
            await asyncio.sleep(0)
            return len(asyncio.all_tasks()) - 1

        async def use(play: Play) -> tuple[int, Held]:
            # The launcher ends its processes in any case, so count them here; count files after the loop's end.
            tasks = await close(play)
            return tasks, await asyncio.to_thread(settled, lambda: Held(processes=(held() - before).processes))

        self._run(close, start=False)
        self._run(close, fresh=True)  # permanent resources, such as a process server, exist from now on
        before = held()
        tasks, processes = self._run(use, fresh=True)
        files = settled(lambda: held() - before)
        require(tasks == 0, f"{tasks} tasks are left after close()")
        require(not processes, f"close() leaves {processes.told()}")
        require(not files, f"close() leaves {files.told()}")

    @check("ENG-016", needs=("ENG-001", "ENG-015"))
    def test_requests_to_a_closed_engine_raise_an_error(self) -> None:
        """Running requests and later ones end with a WorkerError when the engine is closed: callers must not hang."""

        async def use(play: Play) -> tuple[list[GenerateOutput | BaseException], GenerateOutput | BaseException]:
            running = await play.keep_busy(self.busy_tokens)
            await play.limited(play.engine.close(), "close()")
            ends = await play.ends(running)
            return ends, (await play.ends([asyncio.create_task(play.ask(ONE))]))[0]

        ends, later = self._run(use, fresh=True)
        wrong = [end for end in ends if not isinstance(end, WorkerError | GenerateOutput)]
        require(not wrong, f"{len(wrong)} of {len(ends)} requests under way at close() ended with {wrong[:1]}")
        require(isinstance(later, WorkerError), f"generate() after close() ended with {later!r}")

    @check("ENG-017", needs=("ENG-001",))
    def test_a_prompt_that_is_too_long_does_not_affect_other_requests(self) -> None:
        """Return no token and finish LENGTH, or raise a SlimeError with the length; other requests must succeed."""
        if self.too_long is None:
            raise SkipTest("the contract says too_long = None: there is no limit")
        prompt = [self.prompts[0][0]] * self.too_long

        async def use(play: Play) -> list[GenerateOutput | BaseException]:
            calls = [play.generate(prompt, SAMPLED), *(play.ask(SAMPLED, seed=seed) for seed in range(4))]
            return await play.ends([asyncio.create_task(call) for call in calls])

        long, *others = self._run(use)
        if isinstance(long, GenerateOutput):
            empty = not len(long.tokens) and long.finish is FinishReason.LENGTH
            require(empty, f"a prompt of {self.too_long} tokens got {len(long.tokens)} tokens, finish {long.finish}")
        else:
            clear = isinstance(long, SlimeError) and str(self.too_long) in str(long)
            require(clear, f"the error does not say that {self.too_long} tokens are too many: {long!r}")
        harmed = [each for each in others if not isinstance(each, GenerateOutput)]
        require(not harmed, f"{len(harmed)} of {len(others)} requests beside it ended with {harmed[:1]}")

    @check("ENG-027", needs=("ENG-001", "ENG-011"))
    def test_invalid_weights_are_rejected_and_change_nothing(self) -> None:
        """A publication may be incomplete or of another model: raise, and keep serving the old version.

        An engine that loads only the tensors it finds returns garbage under a valid version. See `spoilt`.
        """

        async def use(served: Served) -> tuple[object, GenerateOutput, GenerateOutput] | None:
            channel = await asyncio.to_thread(self.spoilt, served.setup)
            if channel is None:
                return None
            play = served.play
            before, said = await play.ask(ONE), None
            try:
                await play.limited(play.engine.load_weights(channel, 1), "load_weights()")
            except Exception as error:
                said = error
            return said, before, await play.ask(ONE)

        told = self._run_served(use)
        if told is None:
            raise SkipTest("the contract says spoilt() = None: nothing that is published can be refused")
        said, before, after = told
        require(said is not None, "load_weights() of weights that are not the model's did not raise")
        version = after.weight_version
        require(version == 0, f"load_weights(1) raised, and an output after it says version {version}")
        apart = abs(after.log_probs[0] - before.log_probs[0])
        require(apart < SAME_LOG_PROB, f"load_weights(1) raised, and a log-prob after it is {apart:g} from version 0")

    @check("ENG-028", needs=("ENG-001", "ENG-013"))
    def test_an_abort_covers_requests_just_sent(self) -> None:
        """`abort` covers all earlier requests, even ones still on their way to the server: do not serve them later.

        Repeat the abort until none is left, or drop a request before it is sent.
        """

        async def use(play: Play) -> list[GenerateOutput | BaseException]:
            await play.ask(ONE)
            asked = []
            for seed in range(EARLY):
                asked.append(asyncio.create_task(play.ask(SamplingParams(self.busy_tokens), seed=seed)))
                await asyncio.sleep(0)
            await play.limited(play.engine.abort(), "abort()")
            return await play.ends(asked)

        ends = self._run(use)
        served = [
            each for each in ends if not isinstance(each, GenerateOutput) or each.finish is not FinishReason.ABORT
        ]
        require(
            not served, f"{len(served)} of {len(ends)} requests were asked before abort(), and ended with {served[:1]}"
        )
