"""Which loop a plan asks for: the whole one, the half that is being debugged, or finetuning.

Example:

    outcome = await run(plan, folder, display)          # resumes by itself from the folder's newest checkpoint
"""

from slime_core.config import Plan
from slime_core.run.base_loop import Outcome
from slime_core.run.folder import RunFolder
from slime_core.run.loop import Loop, run_loop
from slime_core.run.rollout_only import RolloutLoop
from slime_core.run.sft import finetune
from slime_core.run.train_only import train_only
from slime_core.telemetry import Display


async def run(plan: Plan, folder: RunFolder, display: Display) -> Outcome:
    """Run, or continue, the plan in its folder.

    Raises:
        SlimeError: whatever ends the run; the newest checkpoint stays usable.
    """
    debug = plan.config.debug
    if debug.load_debug_rollout_data is not None:
        return await train_only(plan, folder, display, debug.load_debug_rollout_data)
    if plan.config.finetunes:
        return await finetune(plan, folder, display)
    return await run_loop(plan, folder, display, RolloutLoop if debug.debug_rollout_only else Loop)
