"""HfTokenizer: the tokenizer of a model directory in HF format, without torch or transformers.

Example:

    tokenizer = HfTokenizer.load(Path("Qwen3-0.6B"))
    tokenizer.encode("What is 2+3?")
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from slime_core.data.chat_template import ChatTemplate
from slime_core.errors import DataError, ModelError
from slime_core.roles import Tokenizer
from slime_core.sample import Json, Message

if TYPE_CHECKING:
    import tokenizers

_OTHER_FORMS = ("tokenizer.model", "vocab.json", "vocab.txt", "spiece.model", "merges.txt")
"""Files of the slow tokenizers, from which transformers can make a tokenizer.json."""

__all__ = ["HfTokenizer", "token_texts"]


class HfTokenizer:
    """Implements `slime_core.roles.Tokenizer`."""

    def __init__(
        self, backend: "tokenizers.Tokenizer", eos_token_ids: frozenset[int], template: ChatTemplate | None, owner: str
    ) -> None:
        """What `load` has found in a model directory."""
        self._backend = backend
        self._eos_token_ids = eos_token_ids
        self._template = template
        self._owner = owner

    def __str__(self) -> str:
        """The model directory, for messages."""
        return self._owner

    @classmethod
    def load(cls, directory: Path) -> "HfTokenizer":
        """Read `tokenizer.json`, the chat template and the end-of-sequence ids of a model directory.

        Raises:
            ModelError: the directory or a file is missing or unreadable; says what to type.
        """
        backend = _read_backend(directory)
        config = _read_json(directory, "tokenizer_config.json")
        ends = frozenset(_eos_token_ids(directory, backend, config))
        if not ends:
            raise ModelError(
                f"{directory} names no end-of-sequence token, so no response would ever end: write eos_token_id into "
                f'{directory / "generation_config.json"}, for example {{"eos_token_id": 2}}'
            )
        special = {name: text for name in config if name.endswith("_token") and (text := _token_text(config[name]))}
        sources = _template_sources(directory, config)
        template = ChatTemplate(sources, special, str(directory)) if "default" in sources else None
        return cls(backend, ends, template, str(directory))

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Every id that the model's files call an end: a base model's own and the chat format's."""
        return self._eos_token_ids

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the tokens that the model's files call special."""
        added = self._backend.get_added_tokens_decoder()
        return frozenset(number for number, token in added.items() if token.special)

    @property
    def vocab_size(self) -> int:
        """Ids known, added tokens included; the model's embedding may have more rows."""
        return self._backend.get_vocab_size()

    @cached_property
    def longest_token(self) -> int:
        """Bytes of the longest token: a text with more than n times as many is more than n tokens.

        (Unless a normalizer drops characters, or unknown ones are merged into one token.)
        """
        from tokenizers.pre_tokenizers import ByteLevel

        own = self._backend.get_vocab(with_added_tokens=False)
        added = (token.content for token in self._backend.get_added_tokens_decoder().values())
        # A byte-level vocabulary writes each byte as one character.
        is_bytes = set("".join(own)) <= {*ByteLevel.alphabet()}
        return max([1, *(len(text if is_bytes else text.encode()) for text in own), *(len(t.encode()) for t in added)])

    def encode(self, text: str) -> list[int]:
        """Ids of a text, no special tokens added.

        Raises:
            DataError: it has half of a surrogate pair.
        """
        # The fast way notes no offsets, a quarter of the time; it is there for batches alone.
        try:
            return list(self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)
        except TypeError:
            raise DataError("a text has half of a surrogate pair, as \\ud83d, which no tokenizer encodes") from None

    def decode(self, tokens: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """Text of ids, special tokens left out or not."""
        return str(self._backend.decode(list(tokens), skip_special_tokens=skip_special_tokens))

    def apply_chat_template(
        self,
        messages: Sequence[Message],
        tools: Json = None,
        kwargs: Mapping[str, Json] | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> str:
        """The messages as the model's prompt text, with or without the beginning of its answer.

        Raises:
            ModelError: the model has no chat template.
            DataError: its template refuses the messages.
        """
        if self._template is None:
            raise ModelError(
                f"{self._owner} has no chat template (no chat_template.jinja, none in tokenizer_config.json): give "
                "prompts as plain strings without --apply-chat-template, or put a chat_template.jinja there"
            )
        return self._template.render(
            messages, tools, {"add_generation_prompt": add_generation_prompt} | dict(kwargs or {})
        )


def _read_backend(directory: Path) -> "tokenizers.Tokenizer":
    try:
        import tokenizers
    except ImportError:
        raise ModelError(
            f"reading the tokenizer of {directory} needs tokenizers and jinja2, which come with slime-local: in a "
            "checkout of slime-core, pip install -e . -e ./plugins/slime-local"
        ) from None
    # Texts come one by one, so no threads are needed; those of the library would warn whenever a process is forked.
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


def _no_tokenizer(directory: Path) -> str:
    """What is missing, and what to type."""
    if not directory.is_dir():
        return f"there is no model directory {directory}: give --hf-checkpoint a directory in HF format"
    have = [name for name in _OTHER_FORMS if (directory / name).is_file()]
    if have:
        make = "from transformers import AutoTokenizer as T; T.from_pretrained(d).save_pretrained(d)"
        command = f"python -c \"d = '{directory}'; {make}\""
        return f"{directory} has {', '.join(have)} but no tokenizer.json; make one (needs transformers):\n  {command}"
    found = ", ".join(sorted(path.name for path in directory.iterdir())[:8]) or "nothing"
    return (
        f"{directory} has no tokenizer.json (it holds {found}): copy the tokenizer of the model it was made from:\n"
        f"  cp BASE_MODEL/tokenizer*.json {directory}/"
    )


def _read_json(directory: Path, name: str) -> dict[str, Json]:
    """A JSON object of the directory, empty when there is no such file."""
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
    """A special token's text; older files wrap it in an object."""
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else None


def _template_sources(directory: Path, config: Mapping[str, Json]) -> dict[str, str]:
    """Jinja texts by name; a chat_template.jinja takes precedence over what tokenizer_config.json says."""
    given = config.get("chat_template")
    sources: dict[str, str] = {}
    if isinstance(given, str):
        sources["default"] = given
    elif isinstance(given, list):
        sources |= dict(_named_template(each, number, directory) for number, each in enumerate(given))
    elif given is not None:
        raise ModelError(
            f"{directory / 'tokenizer_config.json'}: chat_template is a {type(given).__name__}, expected a text, or a "
            "list of tables with name and template"
        )
    path = directory / "chat_template.jinja"
    if path.is_file():
        try:
            sources["default"] = path.read_text("utf-8")
        except (OSError, ValueError) as error:
            raise ModelError(f"cannot read {path}: {error}") from None
    return sources


def _named_template(each: Json, number: int, directory: Path) -> tuple[str, str]:
    match each:
        case {"name": str(name), "template": str(template)}:
            return name, template
    has = ", ".join(each) if isinstance(each, dict) else f"a {type(each).__name__}"
    raise ModelError(
        f"{directory / 'tokenizer_config.json'}: chat_template[{number}] has {has or 'nothing'}, expected the texts "
        "name and template"
    )


def token_texts(ids: Sequence[int], tokenizer: Tokenizer) -> Iterator[tuple[str, int]]:
    """The text of a sequence in pieces, each with how many tokens it is of, special tokens included.

    A character may be spread over several tokens, none of which has a text of its own: those come together.
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
