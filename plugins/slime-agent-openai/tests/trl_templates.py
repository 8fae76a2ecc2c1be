"""Chat templates of known models, which TRL ships, before a small tokenizer that has a token for every marker.

tokenizer = trl_tokenizer("qwen3", tmp_path, ["<|im_end|>"])
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import pytest
import tokenizers
from chat import byte_level, load_with

from slime_agent_openai.parsers.families import OWN
from slime_core.data import HfTokenizer

TRL = importlib.util.find_spec("trl")
needs_trl = pytest.mark.skipif(TRL is None, reason="trl is not installed, and these are its templates: make peers")


def trl_tokenizer(name: str, folder: Path, ends: Sequence[str]) -> HfTokenizer:
    """With a model's own template; `ends`: what ends its answers. A test that calls it is marked `needs_trl`."""
    assert TRL is not None
    assert TRL.origin is not None
    path = Path(TRL.origin).with_name("chat_templates") / f"{name}.jinja"
    backend = byte_level([], 256)
    backend.add_special_tokens(list(ends))
    markers = {marker for family in OWN.values() for marker in family.markers if "\n" not in marker}
    backend.add_tokens([tokenizers.AddedToken(marker, normalized=False) for marker in sorted(markers - set(ends))])
    template = path.read_text("utf-8").replace('strftime_now("%Y-%m-%d")', "'2026-01-01'")  # there is no clock in ours
    return load_with(folder, backend, template, ends)
