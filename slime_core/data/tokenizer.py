"""The tokenizer of a model directory in HF format, without torch or transformers.

Some properties, such as the end of a turn, are in no config file. `end_of_turn` and `bos_text` find them by running
the chat template or the tokenizer on a short text.

Example:

    tokenizer = HfTokenizer.load(Path("Qwen3-0.6B"))
    tokenizer.encode("What is 2+3?")
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from slime_core.catalog import install_advice
from slime_core.data.chat_template import LARGEST_TEMPLATE, ChatTemplate
from slime_core.errors import ConfigError, DataError, ModelError, did_you_mean
from slime_core.roles import RowFormat, Tokenizer
from slime_core.sample import Json, Message

if TYPE_CHECKING:
    import tokenizers


_ANSWER = "qANSWERq"
"""A text that templates neither quote nor trim."""
_CONTENTS: Sequence[Json] = (_ANSWER, [{"type": "text", "text": _ANSWER}])
"""Content as most templates read it, and as some models with images read it."""


class HfTokenizer:
    """Implements `slime_core.roles.Tokenizer`."""

    def __init__(
        self,
        backend: "tokenizers.Tokenizer",
        eos_token_ids: frozenset[int],
        template: ChatTemplate | None,
        owner: str,
        *,
        adds_bos: bool = True,
    ) -> None:
        """Take over the files of a model directory; call `load` instead."""
        self._backend = backend
        self._named_ends = eos_token_ids
        self.template = template
        """Chat template of the model, or None."""
        self._owner = owner
        self._adds_bos = adds_bos

    def __str__(self) -> str:
        """Return the model directory, for messages."""
        return self._owner

    @classmethod
    def load(cls, directory: Path, day: date | None = None) -> "HfTokenizer":
        """Load `tokenizer.json`, the chat template and the end-of-sequence ids of a model directory.

        Args:
            directory: model directory in HF format.
            day: date that the chat template may insert; None: today.

        Raises:
            ModelError: the directory or a file is missing or unreadable; the message says what to do.
        """
        backend = _read_backend(directory)
        config = _read_json(directory, "tokenizer_config.json")
        ends = frozenset(_eos_token_ids(directory, backend, config))
        special = {name: text for name in config if name.endswith("_token") and (text := _token_text(config[name]))}
        sources = _template_sources(directory, config)
        if sources and find_spec("jinja2") is None:
            raise ModelError(_without("chat template", "jinja2", directory))
        template = ChatTemplate(sources, special, str(directory), day) if "default" in sources else None
        made = cls(backend, ends, template, str(directory), adds_bos=config.get("add_bos_token") is not False)
        if not ends and made.end_of_turn is None:
            raise ModelError(
                f"{directory} names no end-of-sequence token, so no response would ever end: write eos_token_id into "
                f'{directory / "generation_config.json"}, for example {{"eos_token_id": 2}}'
            )
        return made

    @cached_property
    def eos_token_ids(self) -> frozenset[int]:
        """All end ids: from the model's files, of the base model and of the chat format, and `end_of_turn`."""
        return self._named_ends | ({self.end_of_turn} if self.end_of_turn is not None else frozenset())

    @cached_property
    def end_of_turn(self) -> int | None:
        """Id of the first special token that the chat template writes after an answer; None if there is none.

        Raises:
            ModelError: the template is not valid Jinja.
        """
        for content in _CONTENTS if self.template is not None else ():
            dialog: list[Message] = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": content}]
            try:
                text = self.apply_chat_template(dialog, add_generation_prompt=False)
            except DataError:  # the template rejects such a short dialog, or this form of content
                continue
            _, answer, after = text.rpartition(_ANSWER)
            if answer:
                special = self._special.items()
                found = [(after.index(token), -len(token), number) for token, number in special if token in after]
                return min(found)[2] if found else None
        return None

    @property
    def bos_text(self) -> str:
        """Prefix of a prompt that no chat template wrote: the BOS, or an empty text."""
        return self._bos if self._adds_bos else ""

    @cached_property
    def _bos(self) -> str:
        """The special tokens that the tokenizer puts before every text, usually one BOS; else an empty text.

        Without special tokens, `encode(prefix + text)` equals the tokenizer's ids of the text with special tokens.
        """
        plain, whole = (list(self._backend.encode("a", add_special_tokens=each).ids) for each in (False, True))
        places = [at for at in range(len(whole)) if whole[at : at + len(plain)] == plain]
        if not places or not places[0]:
            return ""
        bos = self.decode(whole[: places[0]], skip_special_tokens=False)
        # Tokenizers that put a space before a text's first piece do not do so after a BOS.
        ways = [each for each in (bos, f"{bos} ") if self.encode(f"{each}a") == [*whole[: places[0]], *plain]]
        return ways[0] if ways else bos

    def notes(self, *, chat: bool) -> Sequence[str]:
        """Return sentences about surprising behaviour; `chat`: prompts are written by the chat template."""
        found, end, owner = [], self.end_of_turn, self._owner
        if end is not None and end not in self._named_ends:
            found.append(
                f"the chat template ends an answer with {self._backend.id_to_token(end)!r}, which the files of {owner} "
                "do not name as an end: it ends responses, and checkpoints name it"
            )
        if not chat and (bos := self._bos.strip()):
            why = (
                "as its tokenizer adds it" if self._adds_bos else "for tokenizer_config.json has add_bos_token = false"
            )
            found.append(f"prompts of {owner} begin with{'' if self._adds_bos else 'out'} {bos!r}, {why}")
        return found

    @cached_property
    def _special(self) -> Mapping[str, int]:
        added = self._backend.get_added_tokens_decoder()
        return {token.content: number for number, token in added.items() if token.special}

    @property
    def vocab_size(self) -> int:
        """Number of ids, including added tokens; the model's embedding may have more rows."""
        return self._backend.get_vocab_size()

    @cached_property
    def longest_token(self) -> int:
        """Bytes of the longest token: a text with more than n times as many bytes has more than n tokens.

        (Unless a normalizer drops characters, or unknown characters are merged into one token.)
        """
        from tokenizers.pre_tokenizers import ByteLevel

        own = self._backend.get_vocab(with_added_tokens=False)
        added = (token.content for token in self._backend.get_added_tokens_decoder().values())
        # A byte-level vocabulary writes each byte as one character.
        is_bytes = set("".join(own)) <= {*ByteLevel.alphabet()}
        return max([1, *(len(text if is_bytes else text.encode()) for text in own), *(len(t.encode()) for t in added)])

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special tokens; DataError if the text has half of a surrogate pair."""
        # The fast method computes no offsets and takes a quarter of the time; it exists only for batches.
        try:
            return list(self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        except TypeError:
            raise DataError("a text has half of a surrogate pair, as \\ud83d, which no tokenizer encodes") from None

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the ids of a text, and the range of characters of each."""
        encoding = self._backend.encode(text, add_special_tokens=False)
        return list(encoding.ids), list(encoding.offsets)

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Return the text of ids, with or without special tokens."""
        return str(self._backend.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Json = None,
        kwargs: Mapping[str, Json] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """Return the messages as prompt text, with or without an opened answer.

        Raises:
            ModelError: the model has no chat template.
            DataError: the chat template rejects the messages.
        """
        if self.template is None:
            raise ModelError(
                f"{self._owner} has no chat template (no chat_template.jinja, none in tokenizer_config.json): give "
                "prompts as plain strings without --apply-chat-template, or put a chat_template.jinja there"
            )
        return self.template.render(
            messages, tools, {"add_generation_prompt": add_generation_prompt} | dict(kwargs or {})
        )


def check_template_kwargs(row_format: RowFormat, tokenizer: Tokenizer) -> None:
    """Check that the chat template, if it renders rows, reads every argument.

    Raises:
        ConfigError: the template does not read an argument.
        ModelError: the template is not valid Jinja.
    """
    if not row_format.apply_chat_template or not isinstance(tokenizer, HfTokenizer) or tokenizer.template is None:
        return
    for name in row_format.apply_chat_template_kwargs or {}:
        if name not in tokenizer.template.arguments | {"add_generation_prompt"}:
            known = sorted(tokenizer.template.arguments - tokenizer.template.special_tokens.keys())
            raise ConfigError(
                f"apply_chat_template_kwargs: the chat template of {tokenizer} takes no argument {name!r}."
                f"{did_you_mean(name, known)} It reads: {', '.join(known) or 'none'}"
            )


def with_bos(text: str, tokenizer: Tokenizer) -> str:
    """Return a prompt that no chat template wrote with the tokenizer's BOS, added unless it is there."""
    bos = tokenizer.bos_text if isinstance(tokenizer, HfTokenizer) else ""
    if text.startswith(bos.strip()):
        return text
    return (bos.rstrip(" ") if text.startswith(" ") else bos) + text


def _read_backend(directory: Path) -> "tokenizers.Tokenizer":
    try:
        import tokenizers
    except ImportError:
        raise ModelError(_without("tokenizer", "tokenizers", directory)) from None
    # Texts come one at a time, so threads are useless; the library's threads also warn at every fork.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    path = directory / "tokenizer.json"
    if not path.is_file():
        raise ModelError(_no_tokenizer(directory))
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises plain Exception
        raise ModelError(f"cannot read {path}: {error}") from None
    backend.no_truncation()
    backend.no_padding()
    return backend


def _without(what: str, library: str, directory: Path) -> str:
    return (
        f"reading the {what} of {directory} needs {library}: pip install {library}. slime-local installs it too. "
        f"{install_advice('slime-local')}"
    )


def _no_tokenizer(directory: Path) -> str:
    if not directory.is_dir():
        return f"there is no model directory {directory}: give --hf-checkpoint a directory in HF format"
    return (
        f"{directory} has no tokenizer.json: copy the file from its base model. For a slow tokenizer, "
        "AutoTokenizer of transformers writes it: from_pretrained(DIRECTORY).save_pretrained(DIRECTORY)"
    )


def _read_json(directory: Path, name: str) -> dict[str, Json]:
    path = directory / name
    try:
        values = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read {path}: {error}") from None
    if not isinstance(values, dict):
        raise ModelError(f"cannot read {path}: expected a JSON object, found a {type(values).__name__}")
    return values


def _eos_token_ids(directory: Path, backend: "tokenizers.Tokenizer", config: Mapping[str, Json]) -> Iterator[int]:
    for name in ("generation_config.json", "config.json"):
        values = _read_json(directory, name)
        text_config = values.get("text_config")  # multimodal models keep the language model's keys here
        for table in (values, text_config if isinstance(text_config, dict) else {}):
            given = table.get("eos_token_id")
            yield from (each for each in (given if isinstance(given, list) else [given]) if isinstance(each, int))
    token = _token_text(config.get("eos_token"))
    if token and (found := backend.token_to_id(token)) is not None:
        yield found


def _token_text(token: Json) -> str | None:
    """Return a special token's text; older files wrap it in an object."""
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else None


def _template_sources(directory: Path, config: Mapping[str, Json]) -> dict[str, str]:
    given = config.get("chat_template")
    tables = given if isinstance(given, list) else [{"name": "default", "template": given}]
    sources: dict[str, str] = {}
    for each in tables if given is not None else ():
        match each:
            case {"name": str(name), "template": str(template)}:
                sources[name] = template
            case _:
                raise ModelError(
                    f"{directory / 'tokenizer_config.json'}: chat_template must be a text, or a list of tables with "
                    "the texts name and template"
                )
    path = directory / "chat_template.jinja"
    if path.is_file():
        try:
            with path.open(encoding="utf-8") as file:
                sources["default"] = file.read(LARGEST_TEMPLATE + 1)
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot read {path}: {error}") from None
    return sources


def token_texts(ids: Sequence[int], tokenizer: Tokenizer) -> Iterator[tuple[str, int]]:
    """Yield the text of a sequence in pieces, each with its number of tokens, special tokens included.

    Tokens that share a character, and so have no separate texts, come as one piece.
    """
    held: list[int] = []
    for number in ids:
        held.append(number)
        text = tokenizer.decode(held, skip_special_tokens=False)
        if not text.endswith("\ufffd"):
            yield text, len(held)
            held = []
    if held:
        yield tokenizer.decode(held, skip_special_tokens=False), len(held)
