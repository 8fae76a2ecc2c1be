"""Whole sessions with the chat templates of known models: they go on from what the engine saw, and are one sample."""

from pathlib import Path

from talker import Talker
from trl_templates import needs_trl, trl_tokenizer

from slime_agent_openai.bridge import Bridge
from slime_agent_openai.message import Message, Request, Role, Tool, canonical
from slime_agent_openai.parsers.families import OWN
from slime_agent_openai.parsers.registry import find_family
from slime_agent_openai.session import Session, SessionLimits
from slime_core.roles import FinishReason, SamplingParams
from tests.tables import table

ASKED = Message(Role.USER, "What is 17 + 25?")
TOOLS = (Tool("add", "Adds.", '{"type": "object", "properties": {"a": {"type": "integer"}}}'),)
DEEPSEEK = (
    "Sum.\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n"
    '{"a": 17,  "b": 25}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>'
)
HARMONY = (
    "<|channel|>analysis<|message|>Sum.<|end|><|start|>assistant<|channel|>commentary to=functions.add "
    '<|constrain|>json<|message|>{"a": 17,  "b": 25}<|call|>'
)
QWEN = (
    '<think>\nSum.\n</think>\n\n<tool_call>\n{"name": "add", "arguments": {"a": 17,  "b": 25}}\n</tool_call><|im_end|>'
)
MODELS = {
    "deepseekv3": (["<｜end▁of▁sentence｜>"], DEEPSEEK, "It is 42.<｜end▁of▁sentence｜>"),
    "gemma4_v5": (
        ["<turn|>", "<|tool_response>"],
        "<|channel>thought\nSum.\n<channel|><|tool_call>call:add{b:25,a:17}<tool_call|><|tool_response>",
        "It is 42.<turn|>",
    ),
    "gptoss": (["<|return|>", "<|call|>"], HARMONY, "<|channel|>final<|message|>It is 42.<|return|>"),
    "lfm2_2_5_v2": (
        ["<|im_end|>"],
        "<think>Sum.</think><|tool_call_start|>[add(a=17,b=25)]<|tool_call_end|><|im_end|>",
        "It is 42.<|im_end|>",
    ),
    "qwen3": (["<|im_end|>"], QWEN, "It is 42.<|im_end|>"),
}


class Exactly(Talker):
    """Says a text to the token, its end as well."""

    def _made(self, text: str, sampling: SamplingParams) -> tuple[list[int], FinishReason]:
        return self.tokenizer.encode(text), FinishReason.STOP


@needs_trl
@table("name", MODELS)
async def test_known_templates_make_one_sample(tmp_path: Path, name: str) -> None:
    ends, called, answered = MODELS[name]
    talker = Exactly(trl_tokenizer(name, tmp_path / name, ends), lambda text, turn: (called, answered, answered)[turn])
    family = find_family(talker.tokenizer, OWN.values())
    assert family is not None
    session = Session(talker.context(max_new_tokens=5000), SessionLimits(), Bridge(talker.tokenizer), family)
    first = (await session.reply(Request((ASKED,), tools=TOOLS))).message
    assert [(call.name, canonical(call.arguments)) for call in first.calls] == [("add", '{"a":17,"b":25}')]
    assert first.reasoning == "Sum."
    asked = [ASKED, Message(Role.ASSISTANT, calls=first.calls)]
    asked.append(Message(Role.TOOL, "42", answers=first.calls[0].id))
    second = (await session.reply(Request(tuple(asked), tools=TOOLS))).message
    assert second.text == "It is 42."
    asked += [Message(Role.ASSISTANT, second.text), Message(Role.USER, "Sure?")]
    await session.reply(Request(tuple(asked), tools=TOOLS))
    assert len(list(session.forest.chains())) == 1
    for before, after in zip(talker.log, talker.log[1:], strict=False):
        seen = (*before.prompt, *before.output)
        assert after.prompt[: len(seen)] == seen
