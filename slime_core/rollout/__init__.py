"""Rollout: generate, score and filter groups on one asyncio loop; evaluate through the same slots.

Example:

    scheduler = SyncScheduler(Parts(policy, source, engine, tokenizer, choices, None, [], emit))
    result = await scheduler.collect(rollout_id=0, want=64)
"""

from slime_core.rollout.calls import StallReporter as StallReporter
from slime_core.rollout.engine_handle import Limits as Limits
from slime_core.rollout.engine_pool import EnginePool as EnginePool
from slime_core.rollout.metrics import RolloutResult as RolloutResult
from slime_core.rollout.policy import Choices as Choices
from slime_core.rollout.policy import Lifecycle as Lifecycle
from slime_core.rollout.policy import RewardOnError as RewardOnError
from slime_core.rollout.policy import RolloutPolicy as RolloutPolicy
from slime_core.rollout.policy import Scoring as Scoring
from slime_core.rollout.policy import ServedTeacher as ServedTeacher
from slime_core.rollout.policy import UsedGenerator as UsedGenerator
from slime_core.rollout.policy import UsedReward as UsedReward
from slime_core.rollout.runner import SingleTurn as SingleTurn
from slime_core.rollout.runner import response_text as response_text
from slime_core.rollout.scheduler import POLICIES as POLICIES
from slime_core.rollout.scheduler import ContinuousScheduler as ContinuousScheduler
from slime_core.rollout.scheduler import EvalResult as EvalResult
from slime_core.rollout.scheduler import EvalSet as EvalSet
from slime_core.rollout.scheduler import Parts as Parts
from slime_core.rollout.scheduler import Scheduler as Scheduler
from slime_core.rollout.scheduler import Staleness as Staleness
from slime_core.rollout.scheduler import SyncScheduler as SyncScheduler
from slime_core.rollout.scheduler import evaluate as evaluate
from slime_core.rollout.scheduler import make_scheduler as make_scheduler
from slime_core.rollout.scoring import ENVIRONMENT as ENVIRONMENT
from slime_core.rollout.scoring import MAIN as MAIN
from slime_core.rollout.scoring import Environment as Environment
from slime_core.rollout.scoring import execution_rewards as execution_rewards
from slime_core.rollout.scoring import executions as executions
from slime_core.rollout.scoring import main_of as main_of
