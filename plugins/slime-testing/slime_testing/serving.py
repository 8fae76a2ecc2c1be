"""Parts of an engine's setup, for tests of engines: a launcher, a tiny model, and published weights.

Example:

    model = write_tiny_model(scratch / "model")
    setup = EngineSetup(self.make, 1, hf_checkpoint=model, eos_token_ids=frozenset({2}),
                        launcher=make_launcher(scratch), scratch=scratch)
    channel = publish_model(model, scratch, version=1)          # for `engine.load_weights(channel, 1)`
"""

import json
import mmap
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from unittest import SkipTest

from slime_core.processes.launcher import LocalLauncher
from slime_core.roles import Launcher, LauncherSetup, WeightChannel, WeightSlot
from slime_core.sample import Json

VOCAB, WIDTH, INNER, LAYERS, HEADS, KEY_HEADS = 64, 32, 64, 2, 4, 2
CONFIG: dict[str, Json] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS,
    "head_dim": WIDTH // HEADS,
    "hidden_act": "silu",
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": None,
    "torch_dtype": "float32",
}
SPECIAL = ("<unk>", "<s>", "</s>")


def write_tiny_model(directory: Path) -> Path:
    """Write a tiny Llama model, always with the same bytes; returns the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG, indent=2), "utf-8")
    (directory / "model.safetensors").write_bytes(_tensors())
    words = {**{word: number for number, word in enumerate(SPECIAL)}, **{f"t{each}": each for each in range(3, VOCAB)}}
    tokenizer: dict[str, Json] = {
        "version": "1.0",
        "added_tokens": [
            {
                "id": number,
                "content": word,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for number, word in enumerate(SPECIAL)
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "truncation": None,
        "padding": None,
        "model": {"type": "WordLevel", "vocab": dict(words), "unk_token": SPECIAL[0]},
    }
    about: dict[str, Json] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": SPECIAL[0],
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
    }
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer), "utf-8")
    (directory / "tokenizer_config.json").write_text(json.dumps(about), "utf-8")
    return directory


def _shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    keys = WIDTH // HEADS * KEY_HEADS
    yield "model.embed_tokens.weight", (VOCAB, WIDTH)
    for layer in range(LAYERS):
        inside = f"model.layers.{layer}"
        for name, rows in (("q_proj", WIDTH), ("k_proj", keys), ("v_proj", keys), ("o_proj", WIDTH)):
            yield f"{inside}.self_attn.{name}.weight", (rows, WIDTH)
        for name in ("gate_proj", "up_proj"):
            yield f"{inside}.mlp.{name}.weight", (INNER, WIDTH)
        yield f"{inside}.mlp.down_proj.weight", (WIDTH, INNER)
        yield f"{inside}.input_layernorm.weight", (WIDTH,)
        yield f"{inside}.post_attention_layernorm.weight", (WIDTH,)
    yield "model.norm.weight", (WIDTH,)
    yield "lm_head.weight", (VOCAB, WIDTH)


def _tensors() -> bytes:
    draw = random.Random(0)
    header: dict[str, Json] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for name, shape in _shapes():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [1.0] * count if len(shape) == 1 else [draw.gauss(0.0, 0.1) for _ in range(count)]
        numbers = struct.pack(f"<{count}f", *values)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [len(body), len(body) + len(numbers)]}
        body += numbers
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + bytes(body)


def make_launcher(scratch: Path) -> Launcher:
    """The core's local launcher, which writes logs of processes to `scratch`."""
    return LocalLauncher(LauncherSetup(_make_nothing, 0, scratch=scratch))


def publish_model(model: Path, folder: Path, version: int) -> WeightChannel:
    """Publish a version of a model with the transport `shared-buffer`, as a trainer does.

    Args:
        model: a directory with safetensors files.
        folder: folder for the published weights; the same for all versions of a model.
        version: 0 has the model's weights; other versions have zeros, so that all tokens are equally likely.

    Raises:
        SkipTest: slime-train, which provides the transport, is not installed.
    """
    try:
        from slime_train.shared_buffer import SharedBufferChannel
    except ImportError:
        raise SkipTest("needs slime-train, whose transport shared-buffer publishes the weights") from None
    weights = {slot: numbers for path in sorted(model.glob("*.safetensors")) for slot, numbers in _weights(path)}
    channel = SharedBufferChannel("shared-buffer", tuple(weights), folder)
    for each in channel.files():
        if not each.path.exists():
            each.make()
    file = channel.begin(version)
    with file.path.open("r+b") as written:
        for slot, offset in file.places():
            written.seek(file.start + offset)
            written.write(weights[slot] if version == 0 else bytes(slot.nbytes))
    channel.end(file, version)
    return channel


def _weights(path: Path) -> Iterator[tuple[WeightSlot, bytes]]:
    from slime_train.weight_file import CODES

    dtypes = {code: dtype for dtype, code in CODES.items()}
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        (length,) = struct.unpack("<Q", content[:8])
        start = 8 + length
        for name, about in json.loads(content[8:start]).items():
            if name != "__metadata__":
                begin, end = about["data_offsets"]
                slot = WeightSlot(name, tuple(about["shape"]), dtypes[about["dtype"]])
                yield slot, content[start + begin : start + end]


def _make_nothing(role: str, name: str, **settings: object) -> object:
    raise LookupError(f"the contract kit's launcher cannot build {role} {name!r}")
