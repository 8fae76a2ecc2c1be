"""The whole loop in one readable file: rollout, buffer, train, publish; no checkpoints, no resume, no display.

    slime demo --task chain
    python examples/loop.py runs/demo-base-chain/checkpoints/*/hf

Takes any HF model directory (the demo leaves one in runs/) and teaches it sums. `slime train examples/run.toml` does
the same with everything that a long run needs; its loop is slime_core/run/loop.py.
"""

import asyncio
import json
import random
import sys
import tempfile
from pathlib import Path

from slime_core.roles import BufferContext
from slime_core.run import Session, open_session
from slime_core.sample import Json

GROUPS = 32


def write_prompts(path: Path, count: int) -> Path:
    """Sums of three numbers as a prompt file."""
    draw = random.Random(0)
    with path.open("w") as file:
        for _ in range(count):
            a, b, c = (draw.randint(1, 9) for _ in range(3))
            print(json.dumps({"question": f"What is {a}+{b}+{c}?", "answer": str(a + b + c)}), file=file)
    return path


async def loop(session: Session, rollouts: int) -> list[float]:
    """GRPO, one step a rollout; returns the mean reward of each rollout."""
    curve = []
    async with session:
        await session.publish(version=0)
        for rollout_id in range(rollouts):
            result = await session.scheduler.collect(rollout_id, want=GROUPS)
            session.buffer.add(result.kept)
            draw = session.buffer.sample(GROUPS, BufferContext(rollout_id, weight_version=rollout_id))
            report = await session.trainer.train(session.preparation.prepare(draw, rollout_id), rollout_id)
            await session.publish(version=rollout_id + 1)
            session.buffer.update(report.scores)
            curve.append(result.metrics["rollout/raw_reward"])
            print(f"rollout {rollout_id}: reward {curve[-1]:.3f}")
    return curve


def main(model: str, rollouts: int = 20) -> list[float]:
    """Resolve a configuration, open a run folder, loop."""
    with tempfile.TemporaryDirectory() as scratch:
        values: dict[str, Json] = {
            "hf_checkpoint": model,
            "save": f"{scratch}/run",
            "prompt_data": str(write_prompts(Path(scratch) / "sums.jsonl", GROUPS * rollouts)),
            "input_key": "question",
            "label_key": "answer",
            "apply_chat_template": True,
            "rollout_batch_size": GROUPS,
            "n_samples_per_prompt": 8,
            "num_rollout": rollouts,
            "rollout_max_response_len": 48,
            "lr": 4e-4,
            "reward": {"use": "math"},
        }
        with open_session(values) as session:
            return asyncio.run(loop(session, rollouts))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
