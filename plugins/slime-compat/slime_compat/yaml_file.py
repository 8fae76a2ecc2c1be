"""Reads YAML files of other frameworks and of a `SlimeRunner`, in version 1.2: `1e-6` is a number, `yes` is text."""

from pathlib import Path
from typing import cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError

from slime_core.config import read_run_file, refuse_unfit
from slime_core.errors import ConfigError
from slime_core.sample import Json


def read_fields(path: Path) -> dict[str, Json]:
    """The keys of a file: YAML where its name ends so, else TOML. Raises ConfigError: as `read_yaml`."""
    return read_yaml(path) if path.suffix in (".yaml", ".yml") else read_run_file(path)


def read_yaml(path: Path) -> dict[str, Json]:
    """The keys of a YAML file.

    Raises:
        ConfigError: it cannot be read, is not YAML (with its line), holds no table, or a value that no key takes.
    """
    try:
        values = YAML(typ="safe", pure=True).load(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"no file {path}") from None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: {error.problem or error.context}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not a YAML file: {error}") from None
    if not isinstance(values, dict | None):
        raise ConfigError(f"{path} holds a {type(values).__name__}, expected keys and their values, as lr: 1e-6")
    refuse_unfit(values or {}, str(path))
    return cast("dict[str, Json]", values or {})
