"""What is said to a runtime and by it: the payload of an invocation, the answer that it was taken, and the result.

It is what agents of awslabs' agentcore-rl-toolkit are given and return: their input with `_rollout` beside it, at once
the place of the result, and there, in the end, an object with `rewards`.

Example:

    form = Form(exp_id="math", s3_bucket="results", model_id="default", prompt_key="prompt", label_key="answer")
    key = place_of(client.invoke(..., form.payload(task, input_id)), form.s3_bucket)
    verdict_of(client.fetch(key), "rewards")            # 1.0
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from slime_agent_openai.failure import SHOWN, AgentError
from slime_agent_openai.task import Task, Verdict
from slime_core.sample import Json

QUOTED = 300
"""Characters of an answer that an error quotes."""


@dataclass(frozen=True, slots=True)
class Form:
    """What all payloads of a run have in common."""

    exp_id: str
    """Begins the keys of the results."""
    s3_bucket: str
    """Where they are written."""
    model_id: str
    """What the agent is to call the model."""
    prompt_key: str
    """Where the prompt is; empty: nowhere."""
    label_key: str
    """Where the label is; empty: nowhere."""
    more: Mapping[str, Json] = field(default_factory=dict)
    """What else `_rollout` holds."""

    def payload(self, task: Task, input_id: str) -> bytes:
        """What one sample's agent is given: its row's metadata with prompt and label, and where the model is."""
        rollout: dict[str, Json] = {
            "exp_id": self.exp_id,
            "input_id": input_id,
            "s3_bucket": self.s3_bucket,
            "base_url": task.openai_base_url,
            "api_key": task.api_key,
            "model_id": self.model_id,
            "sampling_params": dict(task.sampling),
            "evaluation": task.evaluation,
        }
        given: dict[str, object] = {self.prompt_key: task.prompt, self.label_key: task.label}
        given.pop("", None)
        return json.dumps({**given, **task.metadata, "_rollout": {**rollout, **self.more}}).encode()


def place_of(answer: bytes, bucket: str) -> str:
    """The key that a runtime says the result will have.

    Raises:
        AgentError: it says something else, or names another bucket.
    """
    said = _object(answer, "agent_remote_answer", "the runtime's answer")
    key = said.get("result_key")
    if said.get("s3_bucket") != bucket or not isinstance(key, str) or not key:
        raise AgentError(
            "agent_remote_answer",
            f"the runtime answered {_quoted(answer)}; expected s3_bucket {bucket!r} and a result_key. Is its entry "
            "point an AgentCoreRLApp's rollout_entrypoint, which answers at once?",
        )
    return key


def verdict_of(result: bytes, reward_key: str) -> Verdict:
    """The reward that a result holds; None where no key says which.

    Raises:
        AgentError: the agent failed, or there is no finite reward.
    """
    said = _object(result, "agent_remote_result", "the result")
    if said.get("status_code", 200) != 200:
        told = f"{said.get('stop_reason', '')}\n{said.get('traceback', '')}".strip()
        raise AgentError("agent_remote_failed", told or _quoted(result))
    if not reward_key:
        return None
    if reward_key not in said:
        there = ", ".join(list(said)[:10])
        raise AgentError("agent_remote_reward", f"the result has no {reward_key!r}; it has {there}"[:SHOWN])
    given = said[reward_key]
    match given:
        case [*_, last] if isinstance(last, float | int):
            return _finite(last, given)
        case float() | int():
            return _finite(given, given)
        case dict() if given:
            return {str(name): _finite(value, given) for name, value in given.items()}
    raise _no_reward(given)


def _finite(number: object, given: object) -> float:
    """One number of a reward.

    Raises:
        AgentError: it is none, or not finite.
    """
    try:
        if isinstance(number, float | int) and isfinite(number):
            return float(number)
    except OverflowError:  # an integer that no float holds
        pass
    raise _no_reward(given)


def _no_reward(given: object) -> AgentError:
    return AgentError("agent_remote_reward", f"the reward is {given!r:.200}; expected a finite number, or some by name")


def _object(raw: bytes, reason: str, what: str) -> dict[str, Json]:
    """The object that JSON says.

    Raises:
        AgentError: it is not JSON, or something else.
    """
    try:
        said = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise AgentError(reason, f"{what} is not JSON ({error}): {_quoted(raw)}") from None
    if not isinstance(said, dict):
        raise AgentError(reason, f"{what} is a {type(said).__name__}, expected an object: {_quoted(raw)}")
    return said


def _quoted(raw: bytes) -> str:
    return repr(raw[:QUOTED].decode(errors="replace"))
