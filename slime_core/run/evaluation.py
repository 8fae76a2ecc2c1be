"""Evaluation outside training: the run's own session, its evaluation sets, one model."""

import time

from slime_core.config import Plan
from slime_core.run.folder import RunFolder
from slime_core.run.session import Session
from slime_core.telemetry import Display, SampleStore


async def evaluate_model(plan: Plan, folder: RunFolder, display: Display) -> dict[str, float]:
    """Evaluate the plan's `hf_checkpoint` on its evaluation sets; samples go to the folder."""
    session = Session(plan, folder, display)
    count = sum(len(group.samples) for each in session.eval_sets for group in each.groups)
    display.start(count, f"evaluation of {plan.config.run.hf_checkpoint}", unit="sample")
    with SampleStore(folder.samples) as samples:
        async with session:
            await session.publish(0)
            began = time.monotonic()
            display.phase(f"evaluation: {', '.join(plan.config.evaluation.eval_prompt_data)}")
            result = await session.evaluate(0)
        display.row(count - 1, {"perf/step_time": time.monotonic() - began})
        await samples.write_eval(0, result.samples)
        await samples.flush()
    return dict(result.metrics)
