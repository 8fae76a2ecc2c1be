"""slime's own rollout loop from its checkout, over an HTTP client that answers at once; `controller.py` measures it.

collect = slimes_loop(Path("slime"), Answer(tokens, log_probs, text, prompt=64), batch=128, group=8)
samples = await collect(0)
"""

import asyncio
import importlib
import importlib.util
import itertools
import sys
import types
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server says to every request."""

    tokens: Sequence[int]
    """Ids."""
    log_probs: Sequence[float]
    """One a token."""
    text: str
    """Decoded."""
    prompt: int
    """Tokens of each prompt."""


class _Absent(types.ModuleType):
    """Stands for a library that slime imports and this benchmark has no use for."""

    def __getattr__(self, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def slimes_loop(checkout: Path, answer: Answer, *, batch: int, group: int) -> Callable[[int], Awaitable[int]]:
    """Slime's `generate_rollout_async`, over a client that answers at once."""
    sys.path.insert(0, str(checkout))
    module, slimes_sample = _import_slime()
    meta = {
        "output_token_logprobs": [
            (log_prob, token, None) for log_prob, token in zip(answer.log_probs, answer.tokens, strict=True)
        ],
        "finish_reason": {"type": "stop"},
        "weight_version": "0",
        "prompt_tokens": answer.prompt,
        "completion_tokens": len(answer.tokens),
        "cached_tokens": 0,
    }

    async def post(url: str, payload: object, **options: object) -> dict[str, object]:
        await asyncio.sleep(0)
        return {"text": answer.text, "meta_info": meta}

    async def get(url: str) -> dict[str, list[object]]:
        return {"workers": []}

    async def idle(urls: Sequence[str]) -> None:
        """No server runs."""

    for name, stand_in in (
        ("post", post),
        ("get", get),
        ("abort_servers_until_idle", idle),
        ("load_tokenizer", lambda *args, **options: SimpleNamespace(encode=lambda text, **asked: [1] * answer.prompt)),
        ("load_processor", lambda *args, **options: None),
        ("tqdm", lambda **options: SimpleNamespace(update=lambda count: None, close=lambda: None)),
    ):
        setattr(module, name, stand_in)
    args, numbers = _arguments(len(answer.tokens), batch, group), itertools.count()

    def draw(count: int) -> list[list[object]]:
        return [
            [
                slimes_sample(group_index=number, index=number * group + index, prompt="1 + 1 =")
                for index in range(group)
            ]
            for number in (next(numbers) for _ in range(count))
        ]

    async def collect(rollout_id: int) -> int:
        output, _ = await module.generate_rollout_async(args, rollout_id, draw)
        return sum(map(len, output.samples))

    return collect


def _import_slime() -> tuple[Any, Any]:
    for name in ("ray", "httpx", "sglang", "sglang_router", "pylatexenc", "aiohttp", "PIL", "tqdm"):
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = _Absent(name)
    loop = importlib.import_module("slime.rollout.sglang_rollout")
    return loop, importlib.import_module("slime.utils.types").Sample


def _arguments(tokens: int, batch: int, group: int) -> SimpleNamespace:
    return SimpleNamespace(
        ci_test=False,
        hf_checkpoint="",
        sglang_server_concurrency=512,
        rollout_num_engines=8,
        sglang_dp_size=1,
        sglang_router_ip="",
        sglang_router_port=0,
        rollout_temperature=1.0,
        rollout_top_p=1.0,
        rollout_top_k=-1,
        rollout_max_response_len=tokens,
        rollout_skip_special_tokens=False,
        rollout_stop=None,
        rollout_stop_token_ids=None,
        rollout_global_dataset=True,
        rollout_batch_size=batch,
        over_sampling_batch_size=batch,
        n_samples_per_prompt=group,
        dynamic_sampling_filter_path=None,
        rollout_sample_filter_path=None,
        rollout_all_samples_process_path=None,
        rollout_sample_hook_path=None,
        custom_generate_function_path=None,
        custom_rm_path=None,
        rm_type="random",
        group_rm=False,
        partial_rollout=False,
        mask_offpolicy_in_partial_rollout=False,
        use_rollout_routing_replay=False,
        sglang_speculative_algorithm=None,
    )
