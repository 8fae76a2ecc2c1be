"""Flags that depend on another flag or a file: one function translates each."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

from slime_compat.migrate.migration import GivenFlag, Migration, Result, Row
from slime_compat.yaml_file import read_yaml
from slime_core.sample import Json

Others = Mapping[str, GivenFlag]
Special = Callable[[GivenFlag, Others, Migration], None]
EVAL_KEYS = {
    "path", "n_samples_per_eval_prompt", "temperature", "top_p", "top_k", "max_response_len", "min_new_tokens",
    "stop", "stop_token_ids", "no_stop_trim", "skip_special_tokens", "repetition_penalty", "input_key", "label_key",
    "metadata_key", "tool_key", "multimodal_keys", "apply_chat_template", "apply_chat_template_kwargs",
}  # fmt: skip
"""Keys of slime's evaluation sets that keep their names here."""


def _put(
    migration: Migration, given: GivenFlag, path: tuple[str, ...], value: Json, result: Result, text: str = ""
) -> None:
    migration.put(path, value)
    migration.rows.append(
        Row(result, given.typed, text or f"{'.'.join(path)} = {value!r}", given.line, given.file, path)
    )


def _text(others: Others, name: str) -> str:
    return str(others[name].values[0]) if name in others and others[name].values else ""


def _find_file(given: GivenFlag, migration: Migration) -> Path:
    """The file that a flag names: relative to the working directory, or to a parent folder of the script."""
    path = Path(str(given.values[0]))
    folders = (Path(), *migration.script.absolute().parents)
    return next((folder / path for folder in folders if (folder / path).is_file()), path)


def expert_tensor_parallel_size(given: GivenFlag, others: Others, migration: Migration) -> None:
    """A trainer setting for expert-parallel models; defaults to the tensor-parallel size."""
    size, tensor = str(given.values[0]), _text(others, "tensor_model_parallel_size") or "1"
    if not size.isdecimal():
        migration.note_flag(Result.LEFT_OUT, given, "expected a whole number")
    elif size == tensor:
        migration.note_flag(Result.NEEDLESS, given, "this is the default")
    elif (_text(others, "expert_model_parallel_size") or "1") == "1":
        migration.note_flag(Result.NEEDLESS, given, "experts are not distributed over ranks")
    else:
        _put(migration, given, ("trainer", "megatron", "expert_tensor_parallel_size"), int(size), Result.KEPT)


def is_finetuning(others: Others) -> bool:
    """Whether the script is supervised finetuning."""
    return _text(others, "loss_type") == "sft_loss"


def global_batch_size(given: GivenFlag, others: Others, migration: Migration) -> None:
    """`num_steps_per_rollout`, if it divides the samples of a rollout."""
    batch, per_prompt = _text(others, "rollout_batch_size"), _text(others, "n_samples_per_prompt") or "1"
    size = str(given.values[0]) if given.values else ""
    if not all(text.isdecimal() and int(text) for text in (batch, per_prompt, size)):
        why = (
            "num_steps_per_rollout follows from rollout_batch_size, n_samples_per_prompt and this; one is not a number"
        )
        migration.note_flag(Result.LEFT_OUT, given, why)
        return
    samples = int(batch) * int(per_prompt)
    steps, rest = divmod(samples, int(size))
    if rest or not steps:
        why = f"a rollout has {batch} * {per_prompt} = {samples} samples, not a multiple of {size}; change one of them"
        migration.note_flag(Result.LEFT_OUT, given, why)
    elif "num_steps_per_rollout" in others and _text(others, "num_steps_per_rollout") != str(steps):
        why = f"it means num_steps_per_rollout = {steps}, but that is {_text(others, 'num_steps_per_rollout')}"
        migration.note_flag(Result.LEFT_OUT, given, why)
    else:
        text = f"num_steps_per_rollout = {steps}, for {samples} samples"
        _put(migration, given, ("num_steps_per_rollout",), steps, Result.MAPPED, text)


def eval_prompt_data(given: GivenFlag, others: Others, migration: Migration) -> None:
    """Pairs of a name and a path."""
    texts = [str(value) for value in given.values]
    if len(texts) == 1:  # slime's name of a single set
        texts = ["aime", texts[0]]
    if len(texts) % 2:
        migration.note_flag(Result.LEFT_OUT, given, "expected pairs of a name and a path")
        return
    sets: Json = dict(zip(texts[::2], texts[1::2], strict=True))
    _put(migration, given, ("eval_prompt_data",), sets, Result.KEPT)


def eval_config(given: GivenFlag, others: Others, migration: Migration) -> None:
    """A YAML file of evaluation sets."""
    try:
        file = _find_file(given, migration)
        table = cast("dict[str, Json]", read_yaml(file)["eval"])
        sets, why = dict(_sets(table)), [text for _, text in _unsupported_keys(table)]
    except (OSError, RecursionError, KeyError, TypeError, ValueError, AttributeError) as error:
        problem = (
            f"the file cannot be read here ({type(error).__name__}: {error}): write tables [eval_prompt_data.NAME]"
        )
        migration.note_flag(Result.LEFT_OUT, given, problem)
        return
    migration.put(("eval_prompt_data",), cast(Json, sets))
    text = f"[eval_prompt_data.NAME] for {', '.join(sets)}"
    migration.rows.append(Row(Result.MAPPED, given.typed, text, given.line, given.file, ("eval_prompt_data",)))
    for reason in why:
        migration.note_flag(Result.LEFT_OUT, given, reason)


def _sets(table: dict[str, Json]) -> Iterator[tuple[str, Json]]:
    defaults = cast("dict[str, Json]", table.get("defaults") or {})
    for name, each in _datasets(table):
        both = {**defaults, **each}
        ours = {key: value for key, value in both.items() if key in EVAL_KEYS and value is not None}
        if kind := both.get("rm_type"):
            ours["reward"] = kind
        yield name, cast(Json, ours)


def _unsupported_keys(table: dict[str, Json]) -> Iterator[tuple[str, str]]:
    defaults = cast("dict[str, Json]", table.get("defaults") or {})
    for name, each in _datasets(table):
        for key in {**defaults, **each}:
            if key not in EVAL_KEYS and key not in ("name", "rm_type"):
                yield name, f"{key} of evaluation set {name!r}: write [eval_prompt_data.{name}] reward, or generator"


def _datasets(table: dict[str, Json]) -> Iterator[tuple[str, dict[str, Json]]]:
    datasets = table["datasets"]
    if isinstance(datasets, dict):
        for name, each in datasets.items():
            yield name, cast("dict[str, Json]", each)
    elif isinstance(datasets, list):
        for each in cast("list[dict[str, Json]]", datasets):
            yield str(each["name"]), each


def eval_tool_key(given: GivenFlag, others: Others, migration: Migration) -> None:
    """Written to every evaluation set."""
    sets = migration.get("eval_prompt_data")
    if not isinstance(sets, dict):
        migration.note_flag(Result.NEEDLESS, given, "there is no evaluation set")
        return
    tables = {name: each if isinstance(each, dict) else {"path": each} for name, each in sets.items()}
    value: Json = {name: {"tool_key": given.values[0], **each} for name, each in tables.items()}  # type: ignore[dict-item]  # tables of strings are JSON
    _put(migration, given, ("eval_prompt_data",), value, Result.MAPPED, "tool_key of each evaluation set")


def ref_load(given: GivenFlag, others: Others, migration: Migration) -> None:
    """Kept for a directory in HF format; a Megatron checkpoint is the same model as `hf_checkpoint`."""
    path = str(given.values[0]) if given.values else ""
    uses_reference = "use_kl_loss" in others or _text(others, "kl_coef").strip("0.") != ""
    if "torch_dist" in path or path.rstrip("/") == _text(others, "hf_checkpoint").rstrip("/"):
        why = "reference and initial weights are hf_checkpoint, from which this checkpoint was converted"
        migration.note_flag(Result.NEEDLESS, given, why)
    elif uses_reference:
        text = f"ref_load = {path!r}, which must be in HF format"
        _put(migration, given, ("ref_load",), path, Result.KEPT, text)
    else:
        why = "no KL term needs a reference, and the initial weights are hf_checkpoint"
        migration.note_flag(Result.LEFT_OUT, given, why)


def load(given: GivenFlag, others: Others, migration: Migration) -> None:
    """Not needed to continue a run in its own folder."""
    path, own = (text.rstrip("/") for text in (str(given.values[0]) if given.values else "", _text(others, "save")))
    if not own or path == own or "torch_dist" in path or path == _text(others, "hf_checkpoint").rstrip("/"):
        why = "a run starts from hf_checkpoint and resumes from its folder (save)"
        migration.note_flag(Result.NEEDLESS, given, why)
    else:
        why = "a run starts from hf_checkpoint: set it to the model directory of this checkpoint, in HF format"
        migration.note_flag(Result.LEFT_OUT, given, why)


def reward_key(given: GivenFlag, others: Others, migration: Migration) -> None:
    """The key in the dict that a slime function returns; rewards of plugins return a number."""
    name = "group_rm" if "group_rm" in others else "rm"
    role = "group_reward" if "group_rm" in others else "reward"
    if "custom_rm_path" in others:
        _put(migration, given, (role, name, "reward_key"), str(given.values[0]), Result.MAPPED)
    elif _text(others, "rm_type") == "remote_rm":
        _put(migration, given, ("reward", "remote_rm", "reward_key"), str(given.values[0]), Result.MAPPED)
    else:
        migration.note_flag(Result.NEEDLESS, given, "a plugin's reward returns a number")


def group_rm(given: GivenFlag, others: Others, migration: Migration) -> None:
    """Written as a group reward with the same function."""
    path = migration.get("reward", "rm", "path")
    if path is None:
        migration.note_flag(Result.LEFT_OUT, given, "a plugin's reward scores samples, not groups")
        return
    migration.drop(("reward",))
    migration.put(("group_reward", "use"), "group_rm")
    migration.rows = [row for row in migration.rows if row.path[:1] != ("reward",)]
    _put(migration, given, ("group_reward", "group_rm", "path"), path, Result.MAPPED)


def custom_config(given: GivenFlag, others: Others, migration: Migration) -> None:
    """Values that functions read from `args`."""
    try:
        file = _find_file(given, migration)
        table = read_yaml(file)
    except (OSError, RecursionError, ValueError) as error:
        why = f"the file cannot be read here ({error}): write a function's args into [ROLE.NAME.args]"
        migration.note_flag(Result.LEFT_OUT, given, why)
        return
    functions = [(role, name) for role, name in _FUNCTIONS if migration.get(role, "use") == name]
    if not functions:
        keys = ", ".join(table) or "nothing"
        why = f"the script uses no custom function that reads it; write its values ({keys}) as settings of the choices"
        migration.note_flag(Result.LEFT_OUT, given, why)
    for role, name in functions:
        _put(migration, given, (role, name, "args"), table, Result.MAPPED)


_FUNCTIONS = (
    ("reward", "rm"), ("group_reward", "group_rm"), ("generator", "generate"), ("group_filter", "dynamic_filter"),
    ("sample_filter", "rollout_filter"), ("buffer_filter", "buffer_filter"), ("reward_shaper", "post_process"),
    ("data_source", "source"),
)  # fmt: skip


def external_engines(given: GivenFlag, others: Others, migration: Migration) -> None:
    """Addresses of running servers."""
    urls: Json = [text if "://" in text else f"http://{text}" for text in map(str, given.values)]
    _put(migration, given, ("engine", "sglang", "urls"), urls, Result.MAPPED)


def debug_train_only(given: GivenFlag, others: Others, migration: Migration) -> None:
    """Not needed for finetuning, which generates nothing."""
    if is_finetuning(others):
        migration.note_flag(Result.NEEDLESS, given, "finetuning starts no engine")
    else:
        _put(migration, given, ("debug_train_only",), True, Result.KEPT)


def kept_samples(given: GivenFlag, others: Others, migration: Migration) -> None:
    """Left out: slime's path template is not a run folder."""
    migration.note_flag(Result.LEFT_OUT, given, "load_debug_rollout_data takes a run folder here")


SPECIALS: Mapping[str, Special] = {
    "custom_config": custom_config,
    "debug_train_only": debug_train_only,
    "eval_config": eval_config,
    "eval_prompt_data": eval_prompt_data,
    "eval_tool_key": eval_tool_key,
    "expert_tensor_parallel_size": expert_tensor_parallel_size,
    "external_engines": external_engines,
    "global_batch_size": global_batch_size,
    "group_rm": group_rm,
    "kept_samples": kept_samples,
    "load": load,
    "ref_load": ref_load,
    "reward_key": reward_key,
}
"""Functions by the name in the tables."""
