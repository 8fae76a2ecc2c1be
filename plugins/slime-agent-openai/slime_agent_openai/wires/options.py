"""Options that all protocols share: sampling, stop texts, tools, constraints and `chat_template_kwargs`.

Example:

    sampling_of(Value({"temperature": 0.7, "best_of": 1}))      # (RequestedSetting("temperature", 0.7, "temperature"),)
    choice_of(Value("required", "tool_choice"))                 # (True, (Constraint("tool_choice", ...),))
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Literal, TypeAlias

from slime_agent_openai.errors import IN_SECTION, unsupported
from slime_agent_openai.message import Constraint, RequestedSetting, Tool
from slime_agent_openai.wires.values import Only, Value
from slime_core.roles import RANGES
from slime_core.sample import Json


def sampling_of(fields: Value) -> tuple[RequestedSetting, ...]:
    """Sampling settings of a request, under the names of any protocol or engine."""
    found = []
    for at in fields.present(SETTINGS):
        setting, read = SETTINGS[at.path]
        found.append(RequestedSetting(at.path, read(at), setting))
    found += [RequestedSetting(at.path) for at in fields.present(UNSUPPORTED) if at.json not in UNSUPPORTED[at.path]]
    return tuple(found)


def number(fields: Value, name: str, most: float) -> float:
    """A setting that the reply repeats; 1 if not given."""
    value = fields.at(name).number(0, most)
    return 1.0 if value is None else value


def stop_texts(stop: Value) -> tuple[str, ...]:
    """Texts that end a reply: one text, or a list."""
    texts = [stop] if isinstance(stop.json, str) else list(stop.each())
    for text in texts:
        if not text.text():
            raise text.invalid("a non-empty text")
    return tuple(text.text() for text in texts)


def wants_usage(fields: Value) -> bool:
    """Whether a stream must report token counts."""
    options = fields.at("stream_options")
    return options.is_given and options.at("include_usage").flag()


def _within(name: str, most: float | None = None) -> Callable[[Value], float]:
    """Reads a `SamplingParams` setting within its usual range, or up to a protocol's own `most`."""
    allowed = RANGES[name]

    def read(at: Value) -> float:
        value = at.number(allowed.least, most or allowed.most) or 0.0
        if value not in allowed:
            raise at.invalid(f"a number {allowed}")
        return value

    return read


def _top_k(at: Value) -> float:
    return at.whole(-1) or -1  # some engines use 0 for all tokens


def _count(at: Value) -> float:
    return at.whole(0) or 0


SETTINGS: Mapping[str, tuple[str, Callable[[Value], float]]] = {
    "temperature": ("temperature", _within("temperature", most=2)),
    "top_p": ("top_p", _within("top_p")),
    "top_k": ("top_k", _top_k),
    "min_p": ("min_p", _within("min_p")),
    "presence_penalty": ("presence_penalty", _within("presence_penalty")),
    "frequency_penalty": ("frequency_penalty", _within("frequency_penalty")),
    "repetition_penalty": ("repetition_penalty", _within("repetition_penalty")),
    "repeat_penalty": ("repetition_penalty", _within("repetition_penalty")),
    "min_tokens": ("min_new_tokens", _count),
    "min_new_tokens": ("min_new_tokens", _count),
    "ignore_eos": ("ignore_eos", Value.flag),
}  # By field: the `SamplingParams` setting and its reader. vLLM, SGLang and llama.cpp accept all of these.
UNSUPPORTED: Mapping[str, tuple[Json, ...]] = {
    "allowed_token_ids": ([],),
    "bad_words": ([],),
    "best_of": (1,),
    "custom_logit_processor": ("",),
    "dry_multiplier": (0,),
    "dynatemp_range": (0,),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logits_processors": ([],),
    "mirostat": (0,),
    "no_repeat_ngram_size": (0,),
    "stop_regex": ("", []),
    "stop_token_ids": ([],),
    "tfs_z": (1,),
    "top_a": (0,),
    "typical_p": (1,),
    "use_beam_search": (False,),
    "xtc_probability": (0,),
}  # Sampling fields of engines without effect here, each with its neutral values


KWARGS = "chat_template_kwargs"  # The field's name in all protocols with messages
RESERVED = frozenset({"add_generation_prompt", "continue_final_message", "documents", "messages", "tokenize", "tools"})
"""Template variables that a request may not set."""
_NO_PREFILL = "prefilled replies are not supported; send the text as a user message, or a raw prompt to /v1/completions"
_TEXT_ONLY_REPLY = "replies contain text only; the run keeps their tokens"
OUTPUT_OPTIONS: Mapping[str, Only] = {
    "include_stop_str_in_output": Only((False,), "a reply does not include the stop text"),
    "lora_path": Only(("",), "there is only one model, the policy in training"),
    "no_stop_trim": Only((False,), "a reply does not include the stop text"),
    "prompt_logprobs": Only((), "only log-probs of sampled tokens are available"),
    "return_hidden_states": Only((False,), _TEXT_ONLY_REPLY),
    "return_token_ids": Only((False,), _TEXT_ONLY_REPLY),
    "return_tokens_as_token_ids": Only((False,), _TEXT_ONLY_REPLY),
    "skip_special_tokens": Only((True,), "a reply's text has no special tokens"),
    "truncate_prompt_tokens": Only((), "too long prompts are refused; send a shorter one"),
}  # Fields of vLLM and SGLang that change a reply's format, in all protocols
PROMPT_OPTIONS: Mapping[str, Only] = {
    "add_generation_prompt": Only((True,), _NO_PREFILL),
    "add_special_tokens": Only((False,), "the chat template writes all tokens of the prompt"),
    "chat_template": Only((), "the policy is trained with its own chat template"),
    "continue_final_message": Only((False,), _NO_PREFILL),
    "documents": Only(([],), "send their text in a message"),
    "echo": Only((False,), "a reply does not repeat its prompt"),
    "enable_thinking": Only((), 'send {"chat_template_kwargs": {"enable_thinking": ...}}'),
    "include_reasoning": Only((True,), "replies always include reasoning; ignore it if you do not need it"),
    "input_ids": Only((), "send messages"),
    "separate_reasoning": Only((True,), "replies always separate reasoning from text"),
    "stream_reasoning": Only((True,), "streams always include reasoning"),
    **OUTPUT_OPTIONS,
}  # The same, and fields that change the prompt, in protocols with messages


def template_of(kwargs: Value) -> str:
    """Arguments for the template, as JSON; empty: none."""
    arguments = kwargs.object()
    if reserved := sorted(RESERVED & arguments.keys()):
        raise unsupported(f"{kwargs.path}.{reserved[0]}", "other fields of the request set it")
    if not arguments:
        return ""
    return json.dumps(json.loads(kwargs.as_json()), sort_keys=True, separators=(",", ":"))


UNFORCED = 'the model chooses its calls itself; send "auto" or "none"'
TEXT_ONLY = "output is not constrained here; check the format in the agent"
OPENAI_CHOICES = {"auto": True, "none": False, "required": None}
ANTHROPIC_CHOICES = {"auto": True, "none": False, "any": None, "tool": None}
"""By name: whether the model may call tools; None: it must."""
FORMS = (
    *("ebnf", "grammar", "guided_choice", "guided_grammar", "guided_json", "guided_json_object", "guided_regex"),
    *("json_schema", "regex", "structural_tag", "structured_outputs"),
)  # Fields by which vLLM, SGLang and llama.cpp constrain a reply's format, in all protocols


def choice_of(choice: Value) -> tuple[bool, tuple[Constraint, ...]]:
    """Whether the model may call tools, and the constraint if it must, from OpenAI's `tool_choice`."""
    if isinstance(choice.json, dict):  # one tool by name, or a subset of the tools
        choice.at("type").text()
        return True, (Constraint(choice.path, UNFORCED),)
    return _chosen(choice, choice, OPENAI_CHOICES)


def typed_choice_of(choice: Value) -> tuple[bool, tuple[Constraint, ...]]:
    """The same from Anthropic's `tool_choice`, an object."""
    return _chosen(choice, choice.at("type") if choice.is_given else choice, ANTHROPIC_CHOICES)


def format_of(spec: Value) -> tuple[Constraint, ...]:
    """The constraint of a response format other than text."""
    if not spec.is_given or spec.at("type").text() == "text":
        return ()
    return (Constraint(spec.path, TEXT_ONLY),)


def forms_of(fields: Value) -> tuple[Constraint, ...]:
    """Format constraints of a body, under the names that engines use."""
    return tuple(Constraint(at.path, TEXT_ONLY) for at in fields.present(FORMS) if at.json)


def has_call_rules(tools: Iterable[Tool], *, one_call: bool) -> bool:
    """Whether tools are offered with at most one call, or with strict schemas; neither rule is enforced."""
    return any(one_call or tool.is_strict for tool in tools)


def _chosen(choice: Value, kind: Value, known: Mapping[str, bool | None]) -> tuple[bool, tuple[Constraint, ...]]:
    if (name := kind.text("auto")) not in known:
        raise kind.invalid(f"one of {', '.join(known)}")
    may = known[name]
    return may is not False, (Constraint(choice.path, UNFORCED),) if may is None else ()


Hosted: TypeAlias = Literal["refuse", "ignore"]
"""How to handle tools that are not the agent's functions, such as a provider's search. Some agents always list them but
work without them."""


def function_tool(at: Value, parameters: str) -> Tool:
    """A function tool; its JSON Schema is in the member `parameters`."""
    name = at.at("name").text()
    if not name:
        raise at.at("name").invalid("a name")
    description, schema = at.at("description").text(""), at.at(parameters)
    tool = Tool(name, description, is_strict=at.at("strict").flag())
    return replace(tool, parameters=schema.as_json()) if schema.is_given else tool


def hosted_tool(at: Value, hosted: Hosted) -> None:
    """Ignores or refuses a tool that a provider would run."""
    if hosted == "refuse":
        kind = at.at("type").text("")
        why = f"only a provider can run a tool of type {kind!r}; offer functions"
        raise unsupported(at.path, f'{why}, or set hosted_tools = "ignore" {IN_SECTION}')
