"""Where the slime-core of this environment came from, as pip's constraints: a plugin's repository keeps them in
`slime.txt`, so that its name is never looked up on an index, where it is another project's.

Example:

    slime-core @ https://example.org/v0.1.0/slime_core-0.1.0-py3-none-any.whl#sha256=0a1b...
"""

import json
import shlex
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit

from slime_core.catalog import first_party
from slime_core.sample import Json

CORE = "slime-core"


def constraints() -> str:
    """A line for slime-core and each first-party plugin that is installed; one that fails where no address is known."""
    return "".join(f"{line}\n" for name in (CORE, *first_party()) for line in _line(name))


def beside_core() -> str:
    """What to tell pip about slime-core in this environment, besides what is to be installed."""
    found = distribution(CORE)
    told = _told(found)
    if _part(told, "dir_info").get("editable"):  # a constraint would put a copy in its place
        return f"-e {shlex.quote(unquote(urlsplit(str(told['url'])).path))}"
    return "-c slime.txt" if told else f"{CORE}=={found.version}"


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
    else:  # pip would ask an index for a version
        yield f"# Write here where {name} {found.version} came from: pip did not record it."
        yield f"{name} @ https://address.invalid/{name.replace('-', '_')}-{found.version}-py3-none-any.whl"


def _told(found: Distribution) -> dict[str, Json]:
    """What pip recorded of where it got a distribution: empty for one from an index."""
    text = found.read_text("direct_url.json")
    told: dict[str, Json] = json.loads(text) if text else {}
    return told


def _part(told: dict[str, Json], key: str) -> dict[str, Json]:
    part = told.get(key)
    return part if isinstance(part, dict) else {}
