"""JSON with orjson and without: the same is said and read."""

import json
import math
from collections.abc import Callable
from importlib.util import find_spec

import pytest

from slime_core.sample import Json
from slime_engine_sglang.server import fast, plain

WAYS = [(plain, json.loads)] + ([fast()] if find_spec("orjson") else [])


@pytest.mark.parametrize(("encode", "decode"), WAYS)
def test_what_is_written_is_read(encode: Callable[[object], bytes], decode: Callable[[bytes], Json]) -> None:
    content = {"rid": "ä", "input_ids": [1, 2**40], "sampling_params": {"temperature": 0.7, "stop": None}, "x": True}
    assert decode(encode(content)) == content
    assert b" " not in encode(content)


@pytest.mark.parametrize(("encode", "decode"), WAYS)
def test_nan_is_read_and_what_is_no_json_is_not(
    encode: Callable[[object], bytes], decode: Callable[[bytes], Json]
) -> None:
    [nan] = decode(b"[NaN]")  # type: ignore[misc]
    assert math.isnan(nan)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\w"):
        decode(b'{"a": ')
