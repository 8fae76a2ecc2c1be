"""Where the slime-core of this environment came from, as pip's constraints: a plugin's repository keeps them in
`slime.txt`, so that its name is never looked up on an index, where it is another project's.

Example:

    slime-core @ https://example.org/v0.1.0/slime_core-0.1.0-py3-none-any.whl#sha256=0a1b...
"""

import json
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

from slime_core.catalog import first_party
from slime_core.sample import Json

CORE = "slime-core"


def constraints() -> str:
    """A line for slime-core and for each first-party plugin that is installed."""
    return "".join(f"{line}\n" for name in (CORE, *first_party()) for line in _line(name))


def editable_checkout() -> Path | None:
    """The folder of the checkout that slime-core is, where it is installed by `pip install -e`."""
    told = _told(distribution(CORE))
    if not _part(told, "dir_info").get("editable"):
        return None
    return Path(unquote(urlsplit(str(told["url"])).path))


def _line(name: str) -> Iterator[str]:
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    told = _told(found)
    url = str(told.get("url", ""))
    if vcs := _part(told, "vcs_info"):
        yield f"{name} @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    elif url:
        sums = _part(_part(told, "archive_info"), "hashes")
        yield f"{name} @ {url}" + "".join(f"#{kind}={value}" for kind, value in sums.items() if kind == "sha256")
    else:  # from an index, which only whoever installed it knows
        yield f"{name}=={found.version}"


def _told(found: Distribution) -> dict[str, Json]:
    """What pip recorded of where it got a distribution: empty for one from an index."""
    text = found.read_text("direct_url.json")
    told: dict[str, Json] = json.loads(text) if text else {}
    return told


def _part(told: dict[str, Json], key: str) -> dict[str, Json]:
    part = told.get(key)
    return part if isinstance(part, dict) else {}
