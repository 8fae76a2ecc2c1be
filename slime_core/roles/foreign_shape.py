"""Functions written for another framework: recognised by the names of their parameters, refused with an adapter.

Example:

    def exact(completions, answer, **kwargs): ...       # a reward of TRL

    misfit(exact, "exact", "reward")        # "exact(completions, answer, **kwargs) is not called as ..." and an adapter
"""

import inspect
from collections.abc import Mapping

CALLED_AS: Mapping[str, tuple[str, str]] = {
    "reward": ("sample", "ctx"),
    "group_reward": ("samples", "ctx"),
    "generator": ("sample", "ctx"),
}
"""Parameters of the roles that are one function."""
_BATCHED = frozenset({"completions", "responses", "queries", "prompts", "labels", "answers", "solution_strs"})
"""Parameters that take a list, one item a sample: those of TRL and OpenRLHF."""
_FIELDS: Mapping[str, str] = {
    "completions": "{0}.response",
    "completion": "{0}.response",
    "responses": "{0}.response",
    "response": "{0}.response",
    "solution_str": "{0}.response",
    "solution_strs": "{0}.response",
    "queries": "{0}.prompt + {0}.response",
    "prompts": "{0}.prompt",
    "prompt": "{0}.prompt",
    "data_source": '{0}.metadata["data_source"]',
    "extra_info": "{0}.metadata",
    **dict.fromkeys(
        ("answer", "answers", "gold", "ground_truth", "label", "labels", "solution", "target"), "{0}.label"
    ),
}
"""What each parameter of TRL, verl, OpenRLHF and verifiers is here."""
_FOREIGN = _FIELDS.keys() - {"prompt", "label", "gold", "target"}
_COMPAT = {"reward": "rm", "group_reward": "group_rm", "generator": "generate"}
"""Choices of slime-compat that call slime's own functions."""


def misfit(function: object, name: str, role: str) -> str | None:
    """Return why a function does not fit a role that is one function, with an adapter where one can be written.

    None where it fits, and where it has no signature.
    """
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]  # what is no callable raises
    except (TypeError, ValueError):
        return None
    named = [each for each in signature.parameters.values() if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    wanted = CALLED_AS[role]
    required = [each.name for each in named if each.default is inspect.Parameter.empty]
    from_slime = required[:1] == ["args"]
    foreign = from_slime or not _FOREIGN.isdisjoint(required)
    try:
        signature.bind(*wanted)
        if not foreign:
            return None
    except TypeError:
        pass
    begin = "async def" if role == "generator" else "def"
    why = f"{name}{signature} cannot be called as `{begin} {name.rpartition('.')[2]}({', '.join(wanted)})`"
    if from_slime:
        return f'{why}: it is for slime. Choose "{_COMPAT[role]}" of slime-compat, with its path in the settings'
    if not foreign or role == "generator":
        return why
    keywords = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())
    lines = "\n".join(_adapter(function, name, named, wanted[0], keywords))
    return f"{why}: it is for another framework. Add this adapter, and choose `adapted`:\n{lines}"


def _adapter(function: object, name: str, named: list[inspect.Parameter], subject: str, keywords: bool) -> list[str]:
    is_async, many = inspect.iscoroutinefunction(function), subject == "samples"
    batched = any(each.name in _BATCHED for each in named)
    each_of = "sample" if batched or not many else "each"
    arguments = []
    for parameter in named:
        field = _FIELDS.get(parameter.name)
        if field is None and parameter.default is not inspect.Parameter.empty:
            continue
        value = (field or f"{{0}}.metadata[{parameter.name!r}]").format(each_of)
        if batched:
            value = f"[{value} for sample in samples]" if many else f"[{value}]"
        arguments.append(f"        {parameter.name}={value},")
    if keywords and not any(_FIELDS.get(each.name) == "{0}.label" for each in named):
        value = f"[{each_of}.label{' for sample in samples' if many else ''}]" if batched else f"{each_of}.label"
        arguments.append(f"        answer={value},  # by the name that {name} reads")
    call = f"{'await ' if is_async else ''}{name}("
    before, after = ("    return ", ["    )"])
    if many and not batched:
        before, after = ("    return [", ["    ) for each in samples]"])
    elif batched and not many:
        before, after = ("    (score,) = ", ["    )", "    return score"])
    head = [f"{'async ' if is_async else ''}def adapted({subject}, ctx):"]
    if any(each.name == "data_source" for each in named):
        head += ['    # each row needs metadata = {"data_source": ..., and the keys of its extra_info}']
    return [*head, before + call, *arguments, *after]
