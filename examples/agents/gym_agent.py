"""An agent with a calculator on tasks of reasoning-gym, scored as the data set of the task does.

As a command it prints the tasks, one JSON object a line. Each turn has a reward of its own: a call that fails costs a
little. See gym.toml.
"""

import ast
import json
import operator
import re
from collections.abc import Callable, Iterable
from functools import cache

import reasoning_gym
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageFunctionToolCall, ChatCompletionMessageParam, ChatCompletionToolParam

from slime_agent_openai import Result, Task

TASKS: dict[str, dict[str, int]] = {
    "chain_sum": {"min_digits": 2, "max_digits": 5, "size": 5_000},
    "products": {"size": 10_000},
    "decimal_arithmetic": {"size": 5_000},
}
"""Data sets, and the options of each."""
TURNS = 6
FAILED = -0.1
"""Reward of a turn in which a call failed."""
INSTRUCTIONS = "Solve the task with the calculator. Give the answer alone between <answer> and </answer>."
TOOLS: list[ChatCompletionToolParam] = [
    {
        "type": "function",
        "function": {
            "name": "calculate",
            "description": "Value of an arithmetic expression, as (3 + 4) * 2.",
            "parameters": {
                "type": "object",
                "properties": {"expression": {"type": "string"}},
                "required": ["expression"],
            },
        },
    }
]
BINARY: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
LONGEST = 200
"""Characters of an expression."""


async def calculator(task: Task) -> Result:
    """Ask until there is an answer."""
    messages: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": INSTRUCTIONS},
        {"role": "user", "content": question(task)},
    ]
    rewards: list[float] = []
    async with AsyncOpenAI(base_url=task.openai_base_url, api_key=task.api_key) as client:
        for _ in range(TURNS):
            told = await client.chat.completions.create(model=task.model, messages=messages, tools=TOOLS)
            said = told.choices[0].message
            calls = [call for call in said.tool_calls or [] if isinstance(call, ChatCompletionMessageFunctionToolCall)]
            if not calls:
                return Result(score(task, said.content or ""), [*rewards, 0.0])
            values = [value_of(call) for call in calls]
            rewards.append(FAILED if None in values else 0.0)
            messages.append(
                {
                    "role": "assistant",
                    "content": said.content,
                    "tool_calls": [
                        {
                            "id": call.id,
                            "type": "function",
                            "function": {"name": call.function.name, "arguments": call.function.arguments},
                        }
                        for call in calls
                    ],
                }
            )
            messages += results(calls, values)
    return Result(0.0, rewards)


def question(task: Task) -> str:
    """What the sample asks."""
    return task.prompt if isinstance(task.prompt, str) else str(task.prompt[-1]["content"])


def results(
    calls: Iterable[ChatCompletionMessageFunctionToolCall], values: Iterable[float | None]
) -> list[ChatCompletionMessageParam]:
    """What the calculator answers."""
    return [
        {"role": "tool", "tool_call_id": call.id, "content": "error" if value is None else f"{value:.12g}"}
        for call, value in zip(calls, values, strict=True)
    ]


def value_of(call: ChatCompletionMessageFunctionToolCall) -> float | None:
    """The calculator; None where a call is none, or has no value."""
    try:
        expression = json.loads(call.function.arguments)["expression"]
        if call.function.name != "calculate" or len(expression) > LONGEST:
            return None
        return _value(ast.parse(expression, mode="eval").body)
    except (ValueError, TypeError, KeyError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in BINARY:
            return BINARY[type(sign)](_value(left), _value(right))
    raise ValueError(f"{ast.unparse(node)} is not arithmetic")


def score(task: Task, text: str) -> float:
    """What the data set of the task thinks of the last answer, from 0 to 1."""
    answers = re.findall(r"<answer>(.*?)</answer>", text, re.DOTALL)
    entry = {"question": question(task), "answer": task.label, "metadata": task.metadata}
    score_answer = _scorer(str(task.metadata["source_dataset"]))
    return float(score_answer(answers[-1].strip() if answers else None, entry))


@cache
def _scorer(name: str) -> Callable[..., float]:
    made: Callable[..., float] = reasoning_gym.create_dataset(name, seed=0, size=1).score_answer
    return made


if __name__ == "__main__":
    for name, options in TASKS.items():
        for row in reasoning_gym.create_dataset(name, seed=42, **options):
            print(json.dumps({"input": row["question"], "label": row["answer"], "metadata": row["metadata"]}))
