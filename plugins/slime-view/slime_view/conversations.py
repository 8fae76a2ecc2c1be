"""Conversations: an agent's group as a forest of turns, on the page that slime-agent-openai makes.

Example:

    if there_are_agents(): conversations(run, "train:e0:r17:d17")
"""

import re
from importlib.util import find_spec

from slime_core.errors import ConfigError
from slime_view.guard import digest
from slime_view.runs import OpenRun
from slime_view.samples import Shard

_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)


def there_are_agents() -> bool:
    """Whether the package that draws the forest is installed."""
    return find_spec("slime_agent_openai") is not None


def conversations(run: OpenRun, group: str) -> tuple[str, str]:
    """The page of a group, and the content security policy that allows its style and nothing else.

    Raises:
        ConfigError: the package is not installed, or the run keeps no samples of that group.
        RunFolderError: a file cannot be read.
    """
    if not there_are_agents():
        raise ConfigError("conversations are drawn by slime-agent-openai, which is not installed")
    from slime_agent_openai.conversations import executions_of, page

    path = run.file_of(group)
    if path is None:
        raise ConfigError(f"{run.name} keeps no samples of a group {group!r}")
    found = Shard(path).groups([group])
    shown = [*executions_of(found.kept), *executions_of(found.failed, "failed, and its group went on without it")]
    for each in found.dropped:
        shown += executions_of([each], found.reasons[each.id])
    text = page(f"{run.name}, {group}", shown, run.tokenizer)
    styles = " ".join(map(digest, _STYLE.findall(text)))
    return text, f"default-src 'none'; style-src {styles}; base-uri 'none'; frame-ancestors 'none'"
