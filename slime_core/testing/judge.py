"""judged: runs every contract that applies to a plugin, in this process; as a script, for the process that asked.

Example:

    for title, contract, identity in judged("slime-reward-math", PluginSet()):
        print(title, contract.result(identity))

`check_plugin` runs it in a process of its own, so that a plugin which exits, hangs or crashes is a result.
"""

import dataclasses
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from slime_core.catalog import Candidate, did_you_mean, installed_candidates, is_plugin_module
from slime_core.catalog._candidates import project_candidates
from slime_core.errors import UnknownName
from slime_core.hookspecs import HOOK_OF_EVENT
from slime_core.isolation._leash import keep_descendants
from slime_core.isolation._tree import end_descendants
from slime_core.roles import SPECS, PluginSet
from slime_core.testing.contract import CheckStatus, Contract
from slime_core.testing.package import PluginPackageContract
from slime_core.testing.registry import CONTRACTS
from slime_core.testing.role import catalog_of
from slime_core.testing.run_hooks import RunHooksContract


def found(name: str, plugins: PluginSet) -> tuple[Candidate, PluginSet]:
    """The plugin of that name, from metadata alone, and the plugin set with which it is loaded.

    Raises:
        UnknownName: no such plugin is installed, and it is no module.
    """
    if is_plugin_module(name):
        (candidate,) = project_candidates((name,), plugins.root)
        return candidate, dataclasses.replace(plugins, modules=tuple(dict.fromkeys((*plugins.modules, name))))
    installed = installed_candidates()
    for candidate in installed:
        if name in (candidate.plugin, candidate.name):
            return candidate, plugins
    known = [candidate.plugin for candidate in installed]
    everywhere = [each for role in SPECS for each in catalog_of(plugins).choices(role).values()]
    offering = {each.plugin for each in everywhere if name in (each.spec.name, each.qualified)}
    hint = f" It is a choice of {', '.join(sorted(offering))}." if offering else did_you_mean(name, known)
    raise UnknownName(f"no plugin {name!r} is installed.{hint} Installed: {', '.join(known)}.")


def judged(name: str, plugins: PluginSet) -> Iterator[tuple[str, type[Contract], str]]:
    """What is judged, by which contract, and the number of each of its checks, before the check is run."""
    candidate, plugins = found(name, plugins)
    place = {"dist": candidate.dist} if candidate.dist else {"module": candidate.name}
    package: type[Contract] = type(
        "Package", (PluginPackageContract,), {"plugins": plugins, "automatic": True, **place}
    )
    for identity in package.checks():
        yield "package", package, identity
    if package.result("PKG-002").status is not CheckStatus.PASSED:
        return
    for title, contract in _contracts(candidate, plugins):
        for identity in contract.checks():
            yield title, contract, identity


def _contracts(candidate: Candidate, plugins: PluginSet) -> Iterator[tuple[str, type[Contract]]]:
    """What judges what the plugin offers: a class for each choice, and one for its run hooks."""
    catalog, shared = catalog_of(plugins), {"plugins": plugins, "automatic": True}
    for role in SPECS:
        for registered in catalog.choices(role).values():
            if registered.plugin == candidate.plugin and role in CONTRACTS:
                name = f"{role} {registered.spec.name}"
                yield name, type("Choice", (CONTRACTS[role],), {"choice": registered.qualified, **shared})
    if any(each.plugin == candidate.plugin for hook in HOOK_OF_EVENT.values() for each in catalog.listeners(hook)):
        yield "run hooks", type("Hooks", (RunHooksContract,), {"plugin": candidate.plugin, **shared})


def main() -> None:
    """Write a line before and after each check: `python -m slime_core.testing.judge NAME PLUGINS OUTPUT`."""
    keep_descendants()
    name, given, output = sys.argv[1:]
    values = json.loads(given)
    root = values.pop("root")
    only = values.pop("only")
    plugins = PluginSet(
        only=None if only is None else tuple(only),
        expected=values.pop("expected"),
        root=None if root is None else Path(root),
        **{key: tuple(value) for key, value in values.items()},
    )
    with Path(output).open("a", encoding="utf-8") as lines:
        for title, contract, identity in judged(name, plugins):
            about = {"title": title, "contract": contract.__bases__[0].__name__, "identity": identity}
            lines.write(json.dumps(about) + "\n")
            lines.flush()
            result = contract.result(identity)
            told = {"status": result.status.value, "detail": result.detail, "cpu_s": time.process_time()}
            lines.write(json.dumps({**about, **told}) + "\n")
            lines.flush()
    end_descendants(os.getpid())
    os._exit(0)  # whatever threads it has left running


if __name__ == "__main__":
    main()
