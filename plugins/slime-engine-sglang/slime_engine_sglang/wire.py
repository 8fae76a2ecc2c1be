"""JSON as bytes, there and back: orjson's where that is installed, else Python's own; what they say is the same.

Example:

    data = encode({"rid": "a", "input_ids": [5, 6]})
    reply = decode(data)
"""

import json
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import cast

from slime_core.sample import Json

Encode = Callable[[object], bytes]
Decode = Callable[[bytes], Json]


def plain(content: object) -> bytes:
    """JSON by Python's own encoder."""
    return json.dumps(content, separators=(",", ":")).encode()


def fast() -> tuple[Encode, Decode]:
    """`encode` and `decode` by orjson.

    Raises:
        ImportError: orjson is not installed.
    """
    orjson = import_module("orjson")
    encode, loads = cast(Encode, orjson.dumps), cast(Decode, orjson.loads)

    def decode(text: bytes) -> Json:
        try:
            return loads(text)
        except ValueError:  # NaN, which a server may write, and which the checks of engines name
            return cast(Json, json.loads(text))

    return encode, decode


encode, decode = fast() if find_spec("orjson") else (plain, cast(Decode, json.loads))
"""`encode(content)`, and `decode(text)`, which raises ValueError for what is not JSON."""
