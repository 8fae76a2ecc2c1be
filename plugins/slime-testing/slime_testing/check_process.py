"""Runs all contracts that apply to a plugin, in this process; `check_plugin` runs it as a script.

Example:

    for title, contract, identity in checks_of("slime-reward-math", PluginSet()):
        print(title, contract.result(identity))

`check_plugin` runs it in a separate process, so that an exit, a hang or a crash of the plugin fails only one check.
The next process then continues with the next check, and reuses the results in OUTPUT.
"""

import contextlib
import dataclasses
import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

from slime_core.catalog import PluginStatus, installed_candidates, is_plugin_module
from slime_core.catalog.discovery import project_candidates
from slime_core.errors import PluginError, UnknownName, did_you_mean
from slime_core.hookspecs import HOOK_OF_EVENT
from slime_core.processes.limits import end_descendants, keep_descendants
from slime_core.roles import SPECS, PluginSet
from slime_testing.by_role import CONTRACTS, load_contract, offered_contracts
from slime_testing.contract import NOT_RUN, CheckStatus, Contract
from slime_testing.observers import RunHooksContract
from slime_testing.package import PluginPackageContract
from slime_testing.role import catalog_of

SUBJECT_LIMIT_S = 600.0
"""Seconds, multiplied by its contract's `patience`, after which the remaining checks of a subject are skipped."""


def find_plugin(name: str, plugins: PluginSet) -> tuple[PluginStatus, PluginSet]:
    """The plugin with this name, without importing it, and the plugin set that loads it.

    Raises:
        UnknownName: no such plugin is installed, and the name is not a module.
    """
    if is_plugin_module(name):
        (candidate,) = project_candidates((name,), plugins.root)
        return candidate, dataclasses.replace(plugins, modules=tuple(dict.fromkeys((*plugins.modules, name))))
    installed = installed_candidates()
    for candidate in installed:
        if name in (candidate.plugin, candidate.name):
            return candidate, plugins
    known = [candidate.plugin for candidate in installed]
    choices = [each for role in SPECS for each in catalog_of(plugins).choices(role).values()]
    owners = {each.plugin for each in choices if name in (each.spec.name, each.qualified)}
    hint = f" It is a choice of {', '.join(sorted(owners))}." if owners else did_you_mean(name, known)
    raise UnknownName(f"no plugin {name!r} is installed.{hint} Installed: {', '.join(known)}.")


def checks_of(name: str, plugins: PluginSet) -> Iterator[tuple[str, type[Contract], str]]:
    """Title, contract and number of each check to run; a check comes after the checks that it needs."""
    candidate, plugins = find_plugin(name, plugins)
    source = {"dist": candidate.dist} if candidate.dist else {"module": candidate.name}
    package: type[Contract] = type(
        "Package", (PluginPackageContract,), {"plugins": plugins, "automatic": True, **source}
    )
    for identity in _in_order(package):
        yield "package", package, identity
    if package.result("PKG-002").status is not CheckStatus.PASSED:
        return
    for title, contract in _contracts(candidate, plugins):
        for identity in _in_order(contract):
            yield title, contract, identity


def _in_order(contract: type[Contract]) -> list[str]:
    checks, found = contract.checks(), dict[str, None]()

    def add(identity: str) -> None:
        for needed in checks[identity].needs:
            add(needed)
        found[identity] = None

    for identity in checks:
        add(identity)
    inapplicable = contract().inapplicable()
    return [identity for identity in found if identity not in inapplicable]


def _contracts(candidate: PluginStatus, plugins: PluginSet) -> Iterator[tuple[str, type[Contract]]]:
    catalog, shared = catalog_of(plugins), {"plugins": plugins, "automatic": True}
    offered = offered_contracts(candidate.dist) if candidate.dist else {}
    for role in SPECS:
        for registered in catalog.choices(role).values():
            if registered.plugin == candidate.plugin and role in CONTRACTS:
                base, name = CONTRACTS[role], registered.spec.name
                if entry := offered.get(f"{role}.{name}"):
                    with contextlib.suppress(PluginError):  # PKG-015 reports it
                        base = load_contract(entry, base)
                chosen = {"choice": registered.qualified, "_discovered": catalog}
                yield f"{role} {name}", type("Choice", (base,), {**chosen, **shared})
    if any(each.plugin == candidate.plugin for hook in HOOK_OF_EVENT.values() for each in catalog.listeners(hook)):
        yield "run hooks", type("Hooks", (RunHooksContract,), {"plugin": candidate.plugin, **shared})


def main() -> None:
    """Write a line before and after each check: `python -m slime_testing.check_process NAME PLUGINS OUTPUT`."""
    encode = json.JSONEncoder().encode  # a reference from now, since a plugin may patch json.dumps
    keep_descendants()
    name, pickled, output = sys.argv[1:]
    plugins: PluginSet = ForkingPickler.loads(bytes.fromhex(pickled))
    known, wall_s = _known(Path(output)), defaultdict[str, float](float)
    with Path(output).open("a", encoding="utf-8") as lines:
        for title, contract, identity in checks_of(name, plugins):
            about = {"title": title, "contract": contract.__bases__[0].__name__, "identity": identity}
            info = contract.checks()[identity]
            if line := known.get((title, identity)):
                contract._record(info, CheckStatus(line["status"]), line["detail"])
                continue
            if stopped := known.get((title, "")):
                contract._record(info, CheckStatus.SKIPPED, f"{NOT_RUN}{stopped['detail']}")
            elif wall_s[title] > (limit_s := SUBJECT_LIMIT_S * contract.patience):
                contract._record(
                    info, CheckStatus.SKIPPED, f"{NOT_RUN}the checks of {title} took more than {limit_s:g} s"
                )
            lines.write(encode({**about, "patience": contract.patience}) + "\n")
            lines.flush()
            began = time.monotonic()
            result = contract.result(identity)
            wall_s[title] += time.monotonic() - began
            usage = {"pid": os.getpid(), "cpu_s": time.process_time()}
            lines.write(encode({**about, "status": result.status.value, "detail": result.detail, **usage}) + "\n")
            lines.flush()
    end_descendants(os.getpid())
    os._exit(0)  # do not wait for threads that still run


def _known(output: Path) -> dict[tuple[str, str], dict[str, str]]:
    lines = map(json.loads, output.read_text("utf-8").splitlines())
    return {(line["title"], line["identity"]): line for line in lines if "status" in line}


if __name__ == "__main__":
    main()
