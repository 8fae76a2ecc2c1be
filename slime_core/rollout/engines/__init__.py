"""Several engines behind one: dispatch, health, quarantine and return.

Example:

    engine = EnginePool(make_engine, 8, silence_s=300.0, probe=GenerateRequest([2], SamplingParams(1), seed=0))
"""

from slime_core.rollout.engines.pool import EnginePool

__all__ = ["EnginePool"]
