"""Any text as a run file: its keys are read, or the one typed error says why not."""

import contextlib
import tempfile
from pathlib import Path

from hypothesis import strategies as st

from slime_core.catalog import Catalog
from slime_core.config import parse_config, read_run_file, write_toml
from slime_core.errors import SlimeError
from slime_core.roles import PluginSet

CORE = Catalog.discover(PluginSet(only=()))
WORDS = r"""
a lr seed reward use prompt_data rollout_stop_token_ids eval_prompt_data plugins ~ null yes é 𝔸
" ' ''' \ \u0000 \ud800 \U0010ffff # = . , : [ ] [[ ]] { }
0 -0 1e300 1e999 -inf nan .inf 0x 0o7 1_0 2026-01-31 12:30:00
"""
PIECES = [
    *WORDS.split(),
    *("\n", " ", "\t", "\r", "\r\n", "\u2028", "\0", "\x7f", "\ufeff", '"""', "9" * 25, "9" * 5000),
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=40).map("".join)
REPEATED = st.builds(
    lambda before, unit, count, after: before + unit * min(count, 300_000 // len(unit)) + after,
    TEXTS, st.sampled_from(PIECES), st.sampled_from([33, 1000, 5000, 100_000]), TEXTS,
)  # fmt: skip
CONTENTS = st.binary(max_size=64) | (TEXTS | REPEATED).map(lambda text: text.encode("utf-8", "replace"))


def fuzz(data: st.DataObject) -> None:
    """Read one text, check its keys and write them; what cannot be used is a typed error."""
    content = data.draw(CONTENTS)
    with tempfile.NamedTemporaryFile(suffix=".toml") as file:
        path = Path(file.name)
        path.write_bytes(content)
        with contextlib.suppress(SlimeError):
            values = read_run_file(path)
            write_toml(values)
            parse_config(values, CORE)
