"""A small real tokenizer directory, and a setup for data sources over files written by the test."""

import functools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from slime_core.data import HfTokenizer, PromptSource, prompt_source
from slime_core.roles import DataSourceSetup, PromptFile

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ["<|pad|>", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]

MakeSource = Callable[..., PromptSource]


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """tokenizer.json, tokenizer_config.json and generation_config.json; <|im_end|> is id 2, <|endoftext|> id 3."""
    directory = tmp_path_factory.mktemp("model")
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=[AddedToken(text, special=True) for text in SPECIAL],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(["What is 2+3? The answer is 5. user assistant"] * 4, trainer)
    backend.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 3]}))
    return directory


@pytest.fixture(scope="session")
def tokenizer(model_dir: Path) -> HfTokenizer:
    """The tokenizer of `model_dir`."""
    return HfTokenizer.load(model_dir)


@pytest.fixture
def make_source(tmp_path: Path, tokenizer: HfTokenizer) -> MakeSource:
    """`make_source(rows, shuffle=True, n=2, seed=0, **prompt_file_fields)`: rows become a fresh .jsonl file."""

    def build(
        rows: list[dict[str, object]],
        *,
        shuffle: bool = False,
        n: int = 2,
        seed: int = 0,
        accept: bool = False,
        **fields: object,
    ) -> PromptSource:
        path = tmp_path / f"rows-{len(list(tmp_path.iterdir()))}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        file = PromptFile(**{"path": path, "name": "rows", **fields})  # type: ignore[arg-type]
        return prompt_source(
            make_setup(
                tokenizer,
                prompts=[file],
                row_format=file,
                shuffle=shuffle,
                n_samples_per_prompt=n,
                seed=seed,
                accept_changed_data=accept,
            )
        )

    return build


def make_setup(tokenizer: HfTokenizer, **fields: object) -> DataSourceSetup:
    """A setup of two samples a prompt, seed 0 and no file, unless it says otherwise."""
    given = {"seed": 0, "prompts": (), "n_samples_per_prompt": 2, "shuffle": False, **fields}
    return DataSourceSetup(make=_make, tokenizer=tokenizer, **given)  # type: ignore[arg-type]


@pytest.fixture
def setup_of(tokenizer: HfTokenizer) -> Callable[..., DataSourceSetup]:
    """`setup_of(**fields)`: see `make_setup`."""
    return functools.partial(make_setup, tokenizer)


def _make(role: str, name: str, **settings: object) -> object:
    raise AssertionError("a data source builds nothing else")
