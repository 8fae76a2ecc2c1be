"""How a request has its chat template write the prompt: `chat_template_kwargs`, which servers of open models take.

Example:

    template_of(Value({"enable_thinking": False}, "chat_template_kwargs"))      # '{"enable_thinking":false}'
"""

import json
from collections.abc import Mapping

from slime_agent_openai.errors import unsupported
from slime_agent_openai.wires.fields import Only
from slime_agent_openai.wires.reading import Value

KWARGS = "chat_template_kwargs"
"""The field, in all protocols that have messages."""
OWN = frozenset({"add_generation_prompt", "continue_final_message", "documents", "messages", "tokenize", "tools"})
"""Variables of templates that are not a request's to set."""
_BEGUN = "a reply is begun by the model: send the text as the user's, or post a whole prompt to /v1/completions"
_TOKENS = "replies are told as text; the run keeps their tokens"
TOLD: Mapping[str, Only] = {
    "include_stop_str_in_output": Only((False,), "the text of stop is left out of a reply"),
    "lora_path": Only(("",), "there is one policy, and it is what is trained"),
    "no_stop_trim": Only((False,), "the text of stop is left out of a reply"),
    "prompt_logprobs": Only((), "only the log-probs of what was sampled are known"),
    "return_hidden_states": Only((False,), _TOKENS),
    "return_token_ids": Only((False,), _TOKENS),
    "return_tokens_as_token_ids": Only((False,), _TOKENS),
    "skip_special_tokens": Only((True,), "a reply's text has no special tokens"),
    "truncate_prompt_tokens": Only((), "what is too long is refused; send less"),
}
"""Fields of vLLM and SGLang that would have a reply be told otherwise, in all protocols."""
TEMPLATED: Mapping[str, Only] = {
    "add_generation_prompt": Only((True,), _BEGUN),
    "add_special_tokens": Only((False,), "the chat template writes all tokens of the prompt"),
    "chat_template": Only((), "the policy is trained with its own chat template"),
    "continue_final_message": Only((False,), _BEGUN),
    "documents": Only(([],), "send what they say in a message"),
    "echo": Only((False,), "a reply does not repeat its prompt"),
    "enable_thinking": Only((), 'send {"chat_template_kwargs": {"enable_thinking": ...}}'),
    "include_reasoning": Only((True,), "reasoning is told, and may be left aside"),
    "input_ids": Only((), "send messages"),
    "separate_reasoning": Only((True,), "reasoning is told apart from the text"),
    "stream_reasoning": Only((True,), "reasoning is told while it is made"),
    **TOLD,
}
"""The same, and what would have the prompt be another, in protocols that have messages."""


def template_of(kwargs: Value) -> str:
    """What the template is to be given, as JSON; empty: nothing.

    Raises:
        ApiError: it is not an object, or sets what is not a request's to set.
    """
    given = kwargs.object()
    if own := sorted(OWN & given.keys()):
        raise unsupported(f"{kwargs.path}.{own[0]}", "it follows from the request's other fields")
    if not given:
        return ""
    return json.dumps(json.loads(kwargs.as_json()), sort_keys=True, separators=(",", ":"))
