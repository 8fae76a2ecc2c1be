"""Interfaces of a loaded model and of a decode in progress, common to all implementations."""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from torch import Tensor

from slime_local.model.support import ModelPath
from slime_local.model.tokens import GroupTokens, TokenLogProbs
from slime_local.model.weights import Slot, check_flat
from slime_train import make_portable

TOKENIZER_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "special_tokens_map.json",
    "spiece.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
)


class DecodeState(Protocol):
    """Rows of tokens, each extended by one token per step; more can be added between two steps."""

    @property
    def logits(self) -> Tensor:
        """[rows, V] fp32, of the next token of each row, after the prefill or the last `step`."""

    def add(self, prompts: Sequence[Sequence[int]], prompt_of_row: Sequence[int], max_rows: int) -> None:
        """Prefill prompts and open a row for each entry of `prompt_of_row`, after the existing rows.

        Args:
            prompts: token ids.
            prompt_of_row: the prompt of each new row.
            max_rows: maximum number of rows, including later forks.
        """

    def clear(self) -> None:
        """Remove all rows; their memory is reused."""

    def select(self, sources: Tensor) -> None:
        """Make row i continue row `sources[i]`: rows are dropped, moved or forked."""

    def step(self, tokens: Tensor) -> None:
        """Append one token [rows] to each row and refresh `logits`."""


class LocalModel(ABC):
    """A causal LM over one flat fp32 vector.

    Binding makes every weight a view into a vector and copies nothing, so a trainer owns one vector, an engine reads
    a shared one, and a new weight version is one more `bind`.
    """

    path: ClassVar[ModelPath]

    linear: frozenset[str] = frozenset()
    """Names of the matrices of linear layers, without the output head."""
    transposed: frozenset[str] = frozenset()
    """Names of the linear matrices that are stored [in, out]."""

    def __init__(self, source: Path, why: str, layout: tuple[Slot, ...], vocab_size: int, max_positions: int) -> None:
        self.source = source
        self.why = why
        """One sentence on why this path was chosen."""
        self.layout = layout
        """Every weight's place in the flat vector, dense, in order."""
        self.numel = sum(slot.numel for slot in layout)
        self.vocab_size = vocab_size
        self.max_positions = max_positions
        """The longest text, prompt and response together."""
        self.trained = frozenset(slot.name for slot in layout)
        """Names of the weights that have a gradient; entries of `grad` for other weights are undefined."""

    @property
    @abstractmethod
    def flat(self) -> Tensor:
        """The bound vector, [numel]."""

    @property
    @abstractmethod
    def token_bytes(self) -> int:
        """Bytes of the keys and values of a token."""

    def bind(self, flat: Tensor) -> None:
        """Make every weight a view into `flat`, a contiguous fp32 vector of `numel` elements.

        A bitwise-equal result for two vectors of equal values needs both to start at equal addresses modulo 64 bytes,
        which torch and mmap both give.

        Raises:
            ValueError: the vector does not fit.
        """
        check_flat(flat, self.numel)
        self._bind(flat.detach())

    @abstractmethod
    def _bind(self, flat: Tensor) -> None: ...

    def read_into(self, flat: Tensor) -> None:
        """Copy the bound weights into another vector.

        Raises:
            ValueError: the vector does not fit.
        """
        check_flat(flat, self.numel)
        flat.copy_(self.flat)

    @abstractmethod
    def checkpoint_layers(self) -> None:
        """Enable activation checkpointing: keep only each layer's input and recompute the rest in the backward pass.

        Raises:
            ModelError: its layers cannot be identified.
        """

    @abstractmethod
    def log_probs(
        self, groups: Sequence[GroupTokens], *, temperature: float = 1.0, grad: Tensor | None = None
    ) -> TokenLogProbs:
        """Log-prob and entropy of every response token.

        Args:
            groups: prompts with their responses; on the fast path, what texts share from the start is computed once.
            temperature: logits are divided by it, over 0.
            grad: vector [numel] into which `backward()` on the result accumulates the weights' gradients;
                None computes without a graph. Zero it before the first micro-batch.

        Raises:
            ValueError: no groups, a temperature of 0 or less, or a `grad` that does not fit.
        """

    @property
    @abstractmethod
    def hidden_size(self) -> int:
        """Width of the hidden states."""

    @abstractmethod
    def values(self, groups: Sequence[GroupTokens], head: Tensor, *, grad: Tensor | None = None) -> Tensor:
        """A linear function of the last hidden state, after the final norm, that predicts each response token [T].

        Args:
            groups: as in `log_probs`, and in the order of its result.
            head: [hidden_size]; may take a gradient.
            grad: as in `log_probs`.

        Raises:
            ValueError: no groups, or a `grad` that does not fit.
        """

    @abstractmethod
    def start_decode(self) -> DecodeState:
        """A decode without rows."""

    def save_hf(self, directory: Path, flat: Tensor) -> None:
        """Write the weights of `flat` as a Hugging Face directory, with the tokenizer files of the source.

        Raises:
            ValueError: the vector does not fit.
            OSError: the directory cannot be written.
        """
        check_flat(flat, self.numel)
        directory.mkdir(parents=True, exist_ok=True)
        self._save_weights(directory, flat.detach().cpu())
        for name in TOKENIZER_FILES:
            if (self.source / name).is_file():
                shutil.copyfile(self.source / name, directory / name)
        make_portable(directory)

    @abstractmethod
    def _save_weights(self, directory: Path, flat: Tensor) -> None: ...


def check_log_probs_call(groups: Sequence[GroupTokens], temperature: float, grad: Tensor | None, numel: int) -> None:
    """The argument checks of `LocalModel.log_probs`, shared by the paths."""
    if not groups:
        raise ValueError("log_probs was called without groups; skip the call if there are none")
    if not temperature > 0:
        raise ValueError(f"log_probs needs a temperature above 0, got {temperature}; use 1.0 for greedy samples")
    if grad is not None:
        check_flat(grad, numel)
