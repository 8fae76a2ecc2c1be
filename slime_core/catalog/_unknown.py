"""The error about a name that nobody offers.

It says what exists and from where, the nearest spelling, which plugins failed to load or were left out, and what to
install.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from slime_core.catalog._candidates import CORE
from slime_core.catalog._install import brought_by, how_to_install, usual_name
from slime_core.catalog.registered import Registered
from slime_core.catalog.status import PluginState, PluginStatus
from slime_core.errors import did_you_mean


def unknown_choice(role: str, name: str, choices: Mapping[str, Registered], statuses: Sequence[PluginStatus]) -> str:
    """The whole message, one sentence after the other."""
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
        yield f"No loaded plugin offers {'an' if spoken[0] in 'aeiou' else 'a'} {spoken}."
    yield from _not_loaded(statuses)
    yield from _advice(role, name, spellings, plugins)


def _not_loaded(statuses: Sequence[PluginStatus]) -> Iterator[str]:
    """Names the plugins that might have offered it: those that failed, and those that were left out."""
    for status in statuses:
        if status.failed:
            yield f"Not loaded, and might have offered it: {status}. See slime plugins check {status.plugin}"
        elif status.state is PluginState.EXCLUDED:
            yield f"Might offer it: {status}."


def _advice(role: str, name: str, spellings: Iterable[str], plugins: set[str]) -> Iterator[str]:
    """What to install, as far as the core can know."""
    plain = name.rpartition("/")[2]
    dist = brought_by(role, name)
    if dist and dist not in plugins:
        yield f"{plain!r} comes with {dist}. {how_to_install(dist)}"
    elif not did_you_mean(name, spellings) and plain and plain == name:
        yield f"A plugin that offers it is usually called {usual_name(role, name)}."
    if CORE not in plugins:
        yield f"{CORE} itself is not installed, only importable; in its checkout: pip install -e ."
