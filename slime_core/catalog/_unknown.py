"""The error about a name that nobody offers.

It says what exists, the nearest spelling, which plugins failed to load, and what to install.
"""

from collections.abc import Iterator, Mapping, Sequence

from slime_core.catalog._suggest import did_you_mean
from slime_core.catalog.registered import Registered
from slime_core.catalog.status import PluginStatus

CORE = "slime-core"
FIRST_PARTY = {("reward", "math"): "slime-reward-math"}
"""Where a choice that is not part of the core comes from."""


def unknown_choice(role: str, name: str, choices: Mapping[str, Registered], statuses: Sequence[PluginStatus]) -> str:
    """The whole message, a sentence after the other."""
    return " ".join(_sentences(role, name, choices, statuses))


def _sentences(
    role: str, name: str, choices: Mapping[str, Registered], statuses: Sequence[PluginStatus]
) -> Iterator[str]:
    spoken = role.replace("_", " ")
    plugin, slash, _ = name.rpartition("/")
    spellings = choices if slash else {each.spec.name for each in choices.values()}
    yield f"no {spoken} {name!r}.{did_you_mean(name, spellings)}"
    plugins = {status.plugin for status in statuses}
    if slash and plugin not in plugins:
        yield f"There is no plugin {plugin!r}.{did_you_mean(plugin, plugins)}"
    if choices:
        offered = (f"{each.spec.name} ({each.plugin} {each.version}".rstrip() + ")" for each in choices.values())
        yield f"Available: {', '.join(offered)}."
    else:
        yield f"No loaded plugin offers a {spoken}."
    yield from _failed(statuses)
    yield from _advice(role, name, choices, plugins)


def _failed(statuses: Sequence[PluginStatus]) -> Iterator[str]:
    """Names the plugins that might have offered it, had they loaded."""
    for status in statuses:
        if status.failed:
            yield f"Not loaded, and might have offered it: {status}."


def _advice(role: str, name: str, choices: Mapping[str, Registered], plugins: set[str]) -> Iterator[str]:
    """What to install, as far as the core can know."""
    known = {dist for (its_role, _), dist in FIRST_PARTY.items() if its_role == role and not choices}
    known |= {dist for key, dist in FIRST_PARTY.items() if key == (role, name.rpartition("/")[2])}
    for dist in sorted(known - plugins):
        yield f"Install {dist} from a checkout of slime-core: pip install ./plugins/{dist}"
    if CORE not in plugins:
        yield f"{CORE} itself is not installed, only importable; in its checkout: pip install -e ."
