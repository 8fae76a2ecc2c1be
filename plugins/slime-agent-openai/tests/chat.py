"""Chat: a real tokenizer with a chat template of its own, as small as they come, for tests of the whole plugin.

tokenizer = load_chat(tmp_path, CHATML)
"""

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from slime_core.data import HfTokenizer

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
MARKERS = ("<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "</tool_response>")
CORPUS = (
    "system user assistant tool You are a helpful assistant. What is the sum of two numbers? The answer is 42.",
    '{"name": "add", "arguments": {"a": 17, "b": 25}} {"type": "function", "function": {"parameters": "object"}}',
    "Let me look it up. Rivers and cities: Lyon, Rhone, Saone. It is 813 km long.\n\n",
)


def _template(name: str) -> str:
    path = Path(__file__).parent / "templates" / f"{name}.jinja"
    return path.read_text("utf-8").removesuffix("\n")


CHATML = _template("chatml")
"""As Qwen's: earlier reasoning is left out where a new question comes, and tool results are a user's turn."""
MOVES_TOOLS = _template("moves_tools")
"""As Mistral's: the tools stand before the last question, so a new question changes what came before it."""


def load_chat(folder: Path, template: str = CHATML, ends: Sequence[str] = ("<|im_end|>",)) -> HfTokenizer:
    """The tokenizer of these tests, with a template."""
    return load_with(folder, _backend(), template, ends)


def load_with(folder: Path, backend: Tokenizer, template: str, ends: Sequence[str], bos: str = "") -> HfTokenizer:
    """Write the files of a model, without its weights, and load its tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"chat_template": template, "eos_token": ends[0], "bos_token": bos}
    generation = {"eos_token_id": [backend.token_to_id(end) for end in ends]}
    (folder / "tokenizer.json").write_text(backend.to_str(), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(config), "utf-8")
    (folder / "generation_config.json").write_text(json.dumps(generation), "utf-8")
    return HfTokenizer.load(folder)


@cache
def _backend() -> Tokenizer:
    tokenizer = byte_level(CORPUS, 420, SPECIALS)
    tokenizer.add_tokens([AddedToken(marker, special=False, normalized=False) for marker in MARKERS])
    return tokenizer


def byte_level(lines: Iterable[str], vocab_size: int, specials: Sequence[str] = ()) -> Tokenizer:
    """One of all bytes, trained on some lines."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevelDecoder()
    trainer = BpeTrainer(
        vocab_size=vocab_size, special_tokens=list(specials), initial_alphabet=ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    return tokenizer
