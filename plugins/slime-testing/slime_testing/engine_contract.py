"""EngineContract: the requirements on every engine, ENG-001 to ENG-029.

Example:

    class TestMine(EngineContract):
        choice = "slime-engine-mine/mine"

        def make_setup(self, scratch):                # a small model, and a launcher for the engine's processes
            return EngineSetup(self.make, 1, hf_checkpoint=MODEL, eos_token_ids=frozenset({2}),
                               launcher=make_launcher(scratch), scratch=scratch)

        def publish(self, setup, version):            # weights that differ between versions
            ...

Every check starts an engine with weights of version 0, and closes it. With `fresh = False` the checks share one engine,
except for the checks that close it.
"""

import asyncio
import inspect
import tempfile
from pathlib import Path
from unittest import SkipTest

from slime_core.errors import SlimeError, WorkerError
from slime_core.roles import FinishReason, GenerateOutput, SamplingParams
from slime_testing._engine_answers import ExtrasChecks, SamplingChecks, StreamingChecks
from slime_testing._engine_runs import ONE, SAME_LOG_PROB, SAMPLED, Client, Load, ServedEngine
from slime_testing.calling import SETTLE_S, Resources, resources, wait_released
from slime_testing.contract import check, require
from slime_testing.role import require_methods

METHODS = ("start", "load_weights", "generate", "abort", "close")
EARLY = 8
"""Number of requests just before an abort, each sent one iteration of the event loop after the previous one."""
ROUNDS = 3
"""Number of attempts to abort the engine before it finishes its requests."""


class EngineContract(SamplingChecks, StreamingChecks, ExtrasChecks):
    """Contract of engines: inherit it, set `choice`, and define `make_setup` and `publish`."""

    @check("ENG-001")
    def test_the_factory_builds_an_engine(self) -> None:
        """The object has every method of `slime_core.roles.Engine`, each an `async def`. The factory starts nothing."""
        with tempfile.TemporaryDirectory() as scratch:
            setup = self.make_setup(Path(scratch))
            before = resources()
            built: object = self._build(setup)
            left = resources() - before
            asyncio.run(setup.launcher.close())
        require_methods(built, METHODS)
        plain = [name for name in METHODS if not inspect.iscoroutinefunction(getattr(built, name))]
        require(not plain, f"{', '.join(plain)} of {type(built).__name__} must be `async def`")
        require(not left, f"the factory created {left}; move this to start()")

    @check("ENG-002")
    def test_it_lists_its_transports(self) -> None:
        """`EngineSpec.transports` lists transport names, best first. Without one, a trainer cannot send weights."""
        transports: tuple[object, ...] = tuple(self.spec.transports)
        require(transports, "EngineSpec.transports is empty; expected at least one transport")
        wrong = [each for each in transports if not isinstance(each, str)]
        require(not wrong, f"EngineSpec.transports contains {wrong}; expected names of transports, or ANY_RECEIVER")

    @check("ENG-011", needs=("ENG-001",))
    def test_new_weights_take_effect_at_once(self) -> None:
        """After `load_weights`, outputs come from the new version. Flush caches, and reload every worker."""

        async def use(client: Client, load: Load) -> list[GenerateOutput]:
            before = await client.request(ONE)
            await load(1)
            return [before, *await asyncio.gather(*(client.request(ONE) for _ in range(8)))]

        before, *after = self._run_with_weights(use)
        reported = before.weight_version
        require(reported == 0, f"an output has weight_version {reported!r} with version 0 loaded; expected 0")
        wrong = {output.weight_version for output in after} - {1}
        require(not wrong, f"outputs have weight_version {sorted(wrong)} after version 1 was loaded; expected 1")
        old = sum(abs(output.log_probs[0] - before.log_probs[0]) < SAME_LOG_PROB for output in after)
        require(old == 0, f"{old} of {len(after)} outputs have log-probs of version 0 after version 1 was loaded")

    @check("ENG-012", needs=("ENG-001",))
    def test_weights_can_be_loaded_during_generation(self) -> None:
        """An asynchronous run loads weights at any time. Running requests must finish, with either version."""

        async def use(client: Client, load: Load) -> list[GenerateOutput | BaseException]:
            running = await client.keep_busy(self.busy_tokens)
            await load(1)
            return await client.results(running)

        results = self._run_with_weights(use)
        wrong = [end for end in results if not (isinstance(end, GenerateOutput) and end.weight_version in (0, 1))]
        failures = f"{len(wrong)} of {len(results)} running requests ended with {wrong[:1]}"
        require(not wrong, f"{failures} when version 1 was loaded; expected outputs of version 0 or 1")

    @check("ENG-013", needs=("ENG-001",))
    def test_an_abort_returns_the_tokens_so_far(self) -> None:
        """Each running request returns at once, with its tokens so far and finish ABORT. The engine stays usable.

        If the engine finishes before the abort, set a larger `busy_tokens`.
        """

        async def use(client: Client) -> tuple[list[GenerateOutput | BaseException], GenerateOutput]:
            results: list[GenerateOutput | BaseException] = []
            for _ in range(ROUNDS):
                running = await client.keep_busy(self.busy_tokens)
                await client.with_timeout(client.engine.abort(), "abort()")
                results += await client.results(running)
                if any(isinstance(end, GenerateOutput) and end.finish is FinishReason.ABORT for end in results):
                    break
            return results, await client.request(SAMPLED)

        results, after = self._run(use)
        raised = [end for end in results if isinstance(end, BaseException)]
        require(not raised, f"{len(raised)} of {len(results)} aborted requests raised {raised[:1]}; expected outputs")
        aborted = [end for end in results if isinstance(end, GenerateOutput) and end.finish is FinishReason.ABORT]
        require(aborted, f"none of {len(results)} running requests has finish ABORT after abort()")
        agree = all(len(each.tokens) == len(each.log_probs) for each in aborted)
        require(agree, "an aborted output has different numbers of tokens and log-probs")
        require(after.finish is not FinishReason.ABORT, "a request that was sent after abort() was aborted too")

    @check("ENG-014", needs=("ENG-001",))
    def test_a_cancelled_request_ends(self) -> None:
        """If `generate` is cancelled, end its tasks, and abort the request on the server by its id."""

        async def use(client: Client) -> tuple[int, int, int]:
            await client.request(ONE)
            before = asyncio.all_tasks()
            requests = await client.keep_busy(self.busy_tokens)
            return await self._cancelled(client, requests, before)

        calls, tasks, running = self._run(use)
        require(calls == 0, f"{calls} calls of generate() still run {SETTLE_S:g} s after they were cancelled")
        require(tasks == 0, f"{tasks} tasks still run {SETTLE_S:g} s after their requests were cancelled")
        require(running == 0, f"the engine still runs {running} requests {SETTLE_S:g} s after they were cancelled")

    @check("ENG-015", needs=("ENG-001",))
    def test_close_frees_everything_and_can_be_repeated(self) -> None:
        """A run may close an engine that did not start, and close it twice. End processes, sockets and tasks."""
        before = resources()

        async def close(client: Client) -> int:
            for _ in range(2):
                await client.with_timeout(client.engine.close(), "close()")
            await asyncio.sleep(0)
            return len(asyncio.all_tasks()) - 1

        async def use(client: Client) -> tuple[int, Resources]:
            # Count processes here, since the launcher ends them later in any case. Count files after the loop's end.
            tasks = await close(client)
            return tasks, await asyncio.to_thread(
                wait_released, lambda: Resources(processes=(resources() - before).processes)
            )

        self._run(close, start=False)
        self._run(close, fresh=True)  # creates permanent resources, such as a process server
        before = resources()
        tasks, processes = self._run(use, fresh=True)
        files = wait_released(lambda: resources() - before)
        require(tasks == 0, f"{tasks} tasks still run after close()")
        require(not processes, f"{processes} still exist after close()")
        require(not files, f"{files} are still open after close()")

    @check("ENG-016", needs=("ENG-001", "ENG-015"))
    def test_requests_to_a_closed_engine_raise_an_error(self) -> None:
        """After `close`, running and later requests raise a WorkerError, so that callers do not hang."""

        async def use(client: Client) -> tuple[list[GenerateOutput | BaseException], GenerateOutput | BaseException]:
            running = await client.keep_busy(self.busy_tokens)
            await client.with_timeout(client.engine.close(), "close()")
            results = await client.results(running)
            return results, (await client.results([asyncio.create_task(client.request(ONE))]))[0]

        results, later = self._run(use, fresh=True)
        wrong = [end for end in results if not isinstance(end, WorkerError | GenerateOutput)]
        ended = f"{len(wrong)} of {len(results)} requests that ran at close() ended with {wrong[:1]}"
        require(not wrong, f"{ended}; expected an output or a WorkerError")
        require(
            isinstance(later, WorkerError), f"generate() after close() ended with {later!r}; expected a WorkerError"
        )

    @check("ENG-017", needs=("ENG-001",))
    def test_a_prompt_that_is_too_long_does_not_affect_other_requests(self) -> None:
        """Return no tokens and finish LENGTH, or raise a SlimeError that contains the prompt's length."""
        if self.too_long is None:
            raise SkipTest("the contract sets too_long = None: prompts have no limit")
        prompt = [self.prompts[0][0]] * self.too_long

        async def use(client: Client) -> list[GenerateOutput | BaseException]:
            calls = [client.generate(prompt, SAMPLED), *(client.request(SAMPLED, seed=seed) for seed in range(4))]
            return await client.results([asyncio.create_task(call) for call in calls])

        long, *others = self._run(use)
        if isinstance(long, GenerateOutput):
            empty = not len(long.tokens) and long.finish is FinishReason.LENGTH
            outcome = f"{len(long.tokens)} tokens and finish {long.finish}"
            require(empty, f"a prompt of {self.too_long} tokens got {outcome}; expected 0 tokens and LENGTH")
        else:
            clear = isinstance(long, SlimeError) and str(self.too_long) in str(long)
            require(clear, f"expected a SlimeError that contains the prompt's length {self.too_long}, got {long!r}")
        failed = [each for each in others if not isinstance(each, GenerateOutput)]
        require(not failed, f"{len(failed)} of {len(others)} concurrent requests ended with {failed[:1]}")

    @check("ENG-027", needs=("ENG-001", "ENG-011"))
    def test_invalid_weights_are_rejected_and_change_nothing(self) -> None:
        """If published weights are incomplete or of another model, raise, and continue with the old version.

        An engine that loads only some tensors returns garbage under a valid version. See `invalid_weights`.
        """

        async def use(served: ServedEngine) -> tuple[object, GenerateOutput, GenerateOutput] | None:
            channel = await asyncio.to_thread(self.invalid_weights, served.setup)
            if channel is None:
                return None
            client = served.client
            before, raised = await client.request(ONE), None
            try:
                await client.with_timeout(client.engine.load_weights(channel, 1), "load_weights()")
            except Exception as error:
                raised = error
            return raised, before, await client.request(ONE)

        outcome = self._run_served(use)
        if outcome is None:
            raise SkipTest("the contract's invalid_weights() returns None: its engine accepts all published weights")
        raised, before, after = outcome
        require(raised is not None, "load_weights() accepted the contract's invalid weights; expected an error")
        version = after.weight_version
        require(version == 0, f"load_weights(1) raised, but a later output has version {version}; expected 0")
        gap = abs(after.log_probs[0] - before.log_probs[0])
        differs = f"load_weights(1) raised, but a later log-prob differs by {gap:g} from version 0"
        require(gap < SAME_LOG_PROB, differs)

    @check("ENG-028", needs=("ENG-001", "ENG-013"))
    def test_an_abort_covers_requests_just_sent(self) -> None:
        """`abort` applies to all earlier requests, even if a request has not reached the server yet.

        Repeat the abort until no request runs, or drop requests that are not sent yet.
        """

        async def use(client: Client) -> list[GenerateOutput | BaseException]:
            await client.request(ONE)
            requests = []
            for seed in range(EARLY):
                requests.append(asyncio.create_task(client.request(SamplingParams(self.busy_tokens), seed=seed)))
                await asyncio.sleep(0)
            await client.with_timeout(client.engine.abort(), "abort()")
            return await client.results(requests)

        results = self._run(use)
        served = [
            each for each in results if not isinstance(each, GenerateOutput) or each.finish is not FinishReason.ABORT
        ]
        ended = f"{len(served)} of {len(results)} requests that were sent before abort() ended with {served[:1]}"
        require(not served, f"{ended}; expected finish ABORT")
