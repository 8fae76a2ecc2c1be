"""Families by name: those of this package, and those that other packages name in an entry-point group.

Example:

    family = family_named("hermes")
    families()                                # all of them, by name
"""

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from slime_agent_openai.parsers import deepseek, gemma, harmony, hermes, kimi, lfm, llama3, mistral, plain, tagged
from slime_agent_openai.parsers.family import Family
from slime_core.errors import PluginError, UnknownName, did_you_mean

GROUP = "slime.agent_parsers"
"""Entry points of families from other packages: name = "module:FAMILY"."""
OWN = {
    family.name: family
    for family in (
        hermes.FAMILY,
        tagged.CODER,
        tagged.GLM,
        deepseek.FAMILY,
        kimi.FAMILY,
        mistral.FAMILY,
        llama3.FAMILY,
        lfm.FAMILY,
        gemma.FAMILY,
        harmony.FAMILY,
        plain.FAMILY,
    )
}
"""The families of this package."""


def names() -> list[str]:
    """Every name that `family_named` knows."""
    return sorted({*OWN, *entry_points(group=GROUP).names})


def families() -> Mapping[str, Family]:
    """Every family; those of other packages come first, in the order of their names.

    Raises:
        PluginError: one of another package cannot be loaded.
    """
    others = {entry.name: _loaded(entry) for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name)}
    return others | {name: family for name, family in OWN.items() if name not in others}


def family_named(name: str) -> Family:
    """The family of this name.

    Raises:
        UnknownName: there is none.
        PluginError: it is of another package and cannot be loaded.
    """
    for entry in entry_points(group=GROUP, name=name):
        return _loaded(entry)
    if name in OWN:
        return OWN[name]
    raise UnknownName(unknown(name))


def unknown(name: str) -> str:
    """What to say of a name that no family has."""
    return f"no agent parser {name!r}.{did_you_mean(name, names())} There are: {', '.join(names())}."


def none_fits(template: str, parser: str) -> str:
    """What to say where tools are offered and the parser reads no calls; `template` says whose chat template it is."""
    return (
        f"an agent offers tools, and {parser!r}, the agent parser for the chat template of {template}, reads no calls "
        'of them: none would ever be seen. Where parser is "auto", no other one reads what the template writes. '
        "In the generator's section of the run file name the one that reads what the model writes, for example "
        f'parser = "hermes". {there_are()}'
    )


def another_fits(template: str, parser: str, other: str, written: str) -> str:
    """What to say where tools are offered and the parser does not read the calls that the template writes."""
    return (
        f'an agent offers tools, and parser = "{parser}" does not read the calls that the chat template of {template} '
        f'writes: none would ever be seen. It writes {written.strip()!r:.200}, which parser = "{other}" reads: write '
        'that in the generator\'s section of the run file, or leave parser at "auto", which finds it.'
    )


def there_are() -> str:
    """The families that read calls, a line each, and how to add one."""
    known = "\n".join(f"  {name}: {family.summary}" for name, family in families().items() if family.reads_calls)
    return f"There are:\n{known}\nOr write one, and name it in the entry-point group {GROUP}."


def _loaded(entry: EntryPoint) -> Family:
    owner = f"agent parser {entry.name!r} of {entry.dist.name if entry.dist else 'a package'} ({entry.value})"
    try:
        family = entry.load()
    except Exception as error:  # whatever another package raises
        raise PluginError(f"{owner} cannot be loaded: {type(error).__name__}: {error}") from error
    if not isinstance(family, Family):
        raise PluginError(f"{owner} is a {type(family).__name__}, expected a slime_agent_openai.parsers.family.Family")
    return family
