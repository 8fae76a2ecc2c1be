"""Evaluation outside training: the run's own session, its evaluation sets, one model."""

from slime_core.config import Plan
from slime_core.run.folder import RunFolder
from slime_core.run.session import Session
from slime_core.telemetry import Display, SampleLog


async def evaluate_model(plan: Plan, folder: RunFolder, display: Display) -> dict[str, float]:
    """Evaluate the plan's `hf_checkpoint` on its evaluation sets; samples go to the folder."""
    display.start(1, folder.root.name)
    async with Session(plan, folder, display) as session:
        await session.publish(0)
        display.phase(f"evaluation: {', '.join(plan.config.evaluation.eval_prompt_data)}")
        result = await session.evaluate(0)
    SampleLog(folder.samples).write_eval(0, result.samples)
    return dict(result.metrics)
