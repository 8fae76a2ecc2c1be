from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from chat import load_chat
from trl_templates import needs_trl, trl_tokenizer

from slime_agent_openai.parsers.families import OWN
from slime_agent_openai.parsers.registry import families, find_family, misfit
from tests.tables import table

if TYPE_CHECKING:
    from conftest import Written

CALLED = """{% for m in messages %}{{ m.role ~ ': ' ~ (m.content or '') }}{% for call in m.tool_calls or [] %}
{{ '<tool_call>' ~ {'name': call.function.name, 'arguments': call.function.arguments} | tojson ~ '</tool_call>' }}
{%- endfor %}{{ '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}"""


def test_each_template_finds_its_parser(written: Mapping[str, "Written"]) -> None:
    for way, writes in written.items():
        if not way.startswith("plain"):
            assert find_family(writes.tokenizer, families().values()) == writes.family, way


@table("way", ["hermes", "glm", "deepseek", "llama3"])
def test_mismatched_parser_is_detected(written: Mapping[str, "Written"], way: str) -> None:
    writes = written[way]
    assert misfit(writes.tokenizer, writes.family, OWN.values()) is None
    found = misfit(writes.tokenizer, OWN["hermes" if way == "glm" else "glm"], OWN.values())
    assert found is not None
    assert (found.family, "look_up" in found.written) == (writes.family, True)


def test_template_without_tool_calls_has_no_parser(written: Mapping[str, "Written"]) -> None:
    assert misfit(written["plain"].tokenizer, OWN["glm"], OWN.values()) is None
    assert find_family(written["plain"].tokenizer, families().values()) is None


def test_template_that_opens_reasoning_finds_its_parser(tmp_path: Path) -> None:
    thinking = CALLED.replace("(m.content or '')", "('<think>\n\n</think>\n\n' if m.role == 'assistant' else '')")
    opened = thinking.replace("'assistant: '", "'assistant: <think>\n'")
    assert find_family(load_chat(tmp_path, opened), OWN.values()) == OWN["hermes"]


FIT = {
    "qwen2_5": "hermes",
    "qwen3": "hermes",
    "qwen3_instruct_2507": "hermes",
    "qwen3_vl": "hermes",
    "qwen3_5_think": "qwen3-coder",
    "qwen3_5_nothink": "qwen3-coder",
    "qwen3_6": "qwen3-coder",
    "qwen3_8": "qwen3-coder",
    "nemotron_3_nano": "qwen3-coder",
    "nemotron_3_super": "qwen3-coder",
    "nemotron_3_ultra": "qwen3-coder",
    "glm4moe": "glm",
    "deepseekv3": "deepseek",
    "llama3_1": "llama3",
    "llama3_2": "llama3",
    "lfm2_v2": "lfm2",
    "lfm2_2_5": "lfm2",
    "lfm2_2_5_v2": "lfm2",
    "lfm2_2_5_vl": "lfm2",
    "lfm2": None,
    **dict.fromkeys(["gemma4", "gemma4_v2", "gemma4_v3", "gemma4_v4", "gemma4_v5"], "gemma4"),
    "gptoss": "gpt-oss",
    "gemma3": None,
    "phi3": None,
}


@needs_trl
@table("name", FIT)
def test_known_model_templates_find_their_parser(tmp_path: Path, name: str) -> None:
    tokenizer = trl_tokenizer(name, tmp_path / name, ["<|im_end|>", "<|eot_id|>", "<｜end▁of▁sentence｜>"])
    family = find_family(tokenizer, OWN.values())
    assert (family and family.name) == FIT[name]
