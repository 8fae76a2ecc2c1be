"""Recognition: whether what runs at an address is an SGLang server, of a release that is known, with the run's model.

Example:

    info = await recognised(server, setup)      # what /server_info says; or a ConfigError that says what is wrong
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import cast

from slime_core.errors import ConfigError, ModelError, WorkerError
from slime_core.roles import EngineSetup
from slime_core.sample import Json
from slime_engine_sglang.checkpoint import config_of
from slime_engine_sglang.installed import check_version
from slime_engine_sglang.server import Server, Table

SHAPE = ("model_type", "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
"""What two models agree in where one takes the other's weights and ids."""


async def recognised(server: Server, setup: EngineSetup) -> Table:
    """What a server says of itself, if it is one that can serve the run's model.

    Raises:
        ConfigError: it is not an SGLang, too old, or started with another model or tokenizer.
        WorkerError: it cannot be reached.
    """
    try:
        info = await server.ask("/server_info")
    except (ModelError, WorkerError) as error:
        if isinstance(error.__cause__, OSError):
            raise
        raise foreign(server, f"/server_info: {error}") from error
    if not isinstance(version := info.get("version"), str) or "model_path" not in info:
        raise foreign(server, f"/server_info says neither a release nor a model: {json.dumps(info)[:200]}")
    try:
        check_version(version, f"at {server.url}")
    except ValueError as error:
        raise ConfigError(str(error)) from None
    about = await server.ask("/model_info")
    if differing := await asyncio.to_thread(lambda: next(_differences({**info, **about}, setup), None)):
        raise ConfigError(
            f"{server.title} was started with another model than the run's {setup.hf_checkpoint}: {differing}; start "
            f"it with --model-path {setup.hf_checkpoint}, or give the address of one that was"
        )
    return info


def foreign(server: Server, why: str) -> ConfigError:
    """What to say of an address with another kind of server."""
    return ConfigError(
        f"{server.url} answers, and is not an SGLang server ({why}): [engine.sglang] urls names servers that "
        "`python -m sglang.launch_server` has started, http://HOST:PORT, not routers before them"
    )


def _differences(served: Table, setup: EngineSetup) -> Iterator[str]:
    """How a server's model differs from the run's, as far as the server or its files on this machine tell."""
    model, other = setup.hf_checkpoint.absolute(), Path(str(served["model_path"]))
    config = config_of(model)
    for key in ("model_type", "architectures"):
        if served.get(key) and config.get(key) and _outer(model).get(key) != served[key]:
            yield f"its {key} is {served[key]}, not {_outer(model).get(key)}"
    if other.is_absolute() and other.is_dir() and other.resolve() != model.resolve():
        theirs = config_of(other)
        for key in SHAPE:
            if theirs.get(key) != config.get(key):
                yield f"the {key} of {other} is {theirs.get(key)}, not {config.get(key)}"
        if more := sorted(_ends(other) - _ends(model) - setup.eos_token_ids):
            yield f"it ends a response at {more}, which do not end one of the run's"
    tokenizer = Path(str(served.get("tokenizer_path") or other))
    if tokenizer.is_absolute() and _ids(tokenizer) not in (None, _ids(model)):
        yield f"its tokenizer, {tokenizer}, has other ids for texts"


def _outer(model: Path) -> Mapping[str, Json]:
    return _read(model / "config.json")


def _ends(model: Path) -> Set[int]:
    """Ids that end a response, by the files of a model."""
    told = [_read(model / name).get("eos_token_id") for name in ("config.json", "generation_config.json")]
    return {each for one in told for each in (one if isinstance(one, list) else [one]) if isinstance(each, int)}


def _ids(model: Path) -> object:
    """Which id each text has; None where that is not known."""
    about = _read(model / "tokenizer.json")
    inner = about.get("model")
    if not isinstance(inner, dict):
        return None
    added = [(each["id"], each["content"]) for each in cast(list[dict[str, Json]], about.get("added_tokens") or [])]
    return inner.get("vocab"), added


def _read(path: Path) -> Mapping[str, Json]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text("utf-8"))
        return found if isinstance(found, dict) else {}
    return {}
