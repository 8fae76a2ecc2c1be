"""Writes working plugin packages for `slime plugins new`."""

import builtins
import enum
import json
import keyword
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.resources import files
from pathlib import Path
from string import Template
from urllib.parse import unquote, urlsplit

from slime_core import __version__
from slime_core.catalog import first_party
from slime_core.errors import ConfigError, UnknownName, did_you_mean
from slime_core.sample import Json


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of plugin."""

    key: str
    """Name of the role, or "run_hooks" or "rank_hooks"; also the folder of its templates."""
    summary: str
    """Summary of the example: one line without a full stop."""
    requires: tuple[str, ...] = ()
    """Requirements in addition to slime-core; first-party packages have no bounds here."""

    @property
    def word(self) -> str:
        """The kind's name on the command line and in distribution names."""
        return self.key.replace("_", "-")


KINDS: Mapping[str, Kind] = {
    kind.word: kind
    for kind in (
        Kind("data_source", "Addition problems, generated on the fly"),
        Kind("generator", "Responses that are continued once after they end"),
        Kind("reward", "Share of the label's words that the response contains"),
        Kind("group_reward", "1 for the most frequent answer of the group, else 0"),
        Kind("group_filter", "Drop groups with a mean reward that is too high"),
        Kind("sample_filter", "Remove overlong responses from training"),
        Kind("buffer", "Return the newest groups, and drop the oldest when full"),
        Kind("buffer_filter", "Select the newest groups, and drop stale groups"),
        Kind("reward_shaper", "Subtract a small penalty for every token of the response"),
        Kind("batch_transform", "Train only on the end of the response"),
        Kind("advantage", "Rewards relative to the mean of the others in the group (RLOO)", requires=("slime-train",)),
        Kind("loss", "REINFORCE with a truncated importance weight", requires=("slime-train",)),
        Kind("correction", "Truncated importance sampling", requires=("slime-train",)),
        Kind("engine", "A bigram policy, sampled in the driver process"),
        Kind(
            "trainer",
            "Gradient descent on a bigram policy, on one rank",
            requires=("slime-train", "safetensors>=0.5", "torch>=2.9"),
        ),
        Kind(
            "transport",
            "A compressed file of weights for each version, in the run folder",
            requires=("safetensors>=0.5", "torch>=2.9"),
        ),
        Kind("launcher", "Workers as new processes on this machine"),
        Kind("tracker", "Metrics as a CSV file in the run folder"),
        Kind("check", "Free disk space for checkpoints"),
        Kind("run_hooks", "A line in a log file for every rollout"),
        Kind("rank_hooks", "Log each rank's share of the tokens of a step"),
    )
}
"""Kinds that `slime plugins new` can write, by `word`, in the order in which a run uses them."""


LONGEST = 40
"""Maximum characters of a name, so that generated lines have at most 120."""
_PATTERN = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Names:
    """A kind and a validated name; `slime-reward-x` and `reward-x` are read as `x`."""

    kind: Kind
    """Kind of the plugin."""
    name: str
    """Name of the choice in run files: lower-case letters, digits and single dashes."""

    @classmethod
    def parse(cls, kind: str, name: str) -> "Names":
        """Validate a kind and a name.

        Raises:
            UnknownName: there is no such kind.
            ConfigError: the name is invalid for a distribution or a module.
        """
        word = kind.replace("_", "-")
        if word not in KINDS:
            raise UnknownName(f"no role {kind!r}.{did_you_mean(kind, KINDS)} Roles: {', '.join(KINDS)}.")
        name = name.removeprefix(f"slime-{word}-").removeprefix(f"{word}-") or name
        if not _PATTERN.fullmatch(name) or len(name) > LONGEST:
            raise ConfigError(
                f"name {name!r}: expected lower-case letters, digits and single dashes, at most {LONGEST} "
                f"characters, such as {_repaired(name)!r}"
            )
        return cls(KINDS[word], name)

    @property
    def entry_point(self) -> str:
        """Name of the entry point."""
        return f"{self.kind.word}-{self.name}"

    @property
    def dist(self) -> str:
        """Name of the distribution and of its folder."""
        return f"slime-{self.entry_point}"

    @property
    def class_name(self) -> str:
        """Name of the class: `best-of` becomes `BestOf`."""
        words, role = ("".join(each.capitalize() for each in text.split("-")) for text in (self.name, self.kind.word))
        if not words[0].isalpha():
            return role + words
        known = keyword.iskeyword(words) or hasattr(builtins, words)
        return words + role if known else words

    @property
    def module(self) -> str:
        """Name of the Python package."""
        return self.dist.replace("-", "_")


def _repaired(name: str) -> str:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name)
    parts = re.findall(r"[a-z0-9]+", spaced.lower())
    return "-".join(parts)[:LONGEST].rstrip("-") or "my-own"


CORE = "slime-core"


def constraints() -> str:
    """A pip constraint for slime-core and each first-party plugin, with an invalid URL if the origin is unknown."""
    return "".join(f"{line}\n" for name in (CORE, *first_party()) for line in _line(name))


def keep_core_arguments() -> str:
    """Arguments of `pip install` that keep this environment's slime-core."""
    found = distribution(CORE)
    direct_url = _direct_url(found)
    if _part(direct_url, "dir_info").get("editable"):  # a constraint would replace it by a copy
        return f"-e {shlex.quote(unquote(urlsplit(str(direct_url['url'])).path))}"
    return "-c slime.txt" if direct_url else f"{CORE}=={found.version}"


def _line(name: str) -> Iterator[str]:
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return
    direct_url = _direct_url(found)
    url = str(direct_url.get("url", ""))
    if vcs := _part(direct_url, "vcs_info"):
        yield f"{name} @ {vcs['vcs']}+{url}@{vcs['commit_id']}"
    elif url:
        sums = _part(_part(direct_url, "archive_info"), "hashes")
        yield f"{name} @ {url}" + "".join(f"#{kind}={value}" for kind, value in sums.items() if kind == "sha256")
    else:  # without a URL, pip would use an index
        yield f"# Replace this URL by the origin of {name} {found.version}, which pip did not record."
        yield f"{name} @ https://address.invalid/{name.replace('-', '_')}-{found.version}-py3-none-any.whl"


def _direct_url(found: Distribution) -> dict[str, Json]:
    text = found.read_text("direct_url.json")
    direct_url: dict[str, Json] = json.loads(text) if text else {}
    return direct_url


def _part(direct_url: dict[str, Json], key: str) -> dict[str, Json]:
    part = direct_url.get(key)
    return part if isinstance(part, dict) else {}


_TEMPLATES = files("slime_testing.scaffold") / "templates"


class License(enum.Enum):
    """License of the new plugin."""

    APACHE_2_0 = "Apache-2.0"
    """License of slime-core."""
    MIT = "MIT"
    """The shortest license."""


def render(names: Names, license_: License) -> dict[str, str]:
    """Text of each file of the package, by its path in the package's folder."""
    words = _words(names, license_)
    own = names.kind.key
    words["class_name"] = _unused(names, own)
    words["about"] = _fill(f"{own}/about.md.tmpl", words)
    modules = sorted(each.name for each in (_TEMPLATES / own).iterdir() if each.name.endswith(".py.tmpl"))
    sources = {
        "pyproject.toml": "common/pyproject.toml.tmpl",
        "README.md": "common/README.md.tmpl",
        "CHANGELOG.md": "common/CHANGELOG.md.tmpl",
        "LICENSE": f"licenses/{license_.value}.txt",
        ".gitignore": "common/gitignore.tmpl",
        ".github/workflows/ci.yml": "common/ci.yml.tmpl",
        ".github/workflows/plugin-contracts.yml": "common/plugin-contracts.yml.tmpl",
        f"{names.module}/__init__.py": "common/init.py.tmpl",
    }
    for module in modules:
        folder = "tests" if module.startswith("test_") else names.module
        sources[f"{folder}/{module.removesuffix('.tmpl')}"] = f"{own}/{module}"
    extra = {f"{names.module}/py.typed": "", "slime.txt": constraints()}
    return {path: _fill(source, words) for path, source in sources.items()} | extra


def write_package(texts: Mapping[str, str], folder: Path, *, force: bool = False) -> None:
    """Write the files into `folder`, which is created.

    Args:
        texts: result of `render`.
        folder: target; missing parents are created.
        force: whether to overwrite existing files; other files stay.

    Raises:
        ConfigError: a file exists and `force` is not set, or the folder is not writable.
    """
    try:
        if not force and (existing := sorted(_names_in(folder))):
            shown = ", ".join(existing[:5]) + (", …" if len(existing) > 5 else "")
            raise ConfigError(f"{folder} already exists, with {shown}: use another name, or --force to overwrite files")
        for path, text in texts.items():
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {error.filename or folder}: {error.strerror}") from error


def _names_in(folder: Path) -> Iterable[str]:
    return (each.name for each in folder.iterdir()) if folder.exists() else ()


def _unused(names: Names, own: str) -> str:
    texts = [each.read_text(encoding="utf-8") for each in (_TEMPLATES / own).iterdir()]
    role = "".join(each.capitalize() for each in names.kind.word.split("-"))
    used_words = {word for text in texts for word in re.findall(r"\w+", text)}
    class_name = names.class_name
    return class_name + role if {class_name, f"{class_name}Settings"} & used_words else class_name


def _words(names: Names, license_: License) -> dict[str, str]:
    return {
        "dependencies": _listed(_requirement("slime-core"), *map(_bounded, names.kind.requires)),
        "dist": names.dist,
        "entry_point": names.entry_point,
        "kind": names.kind.key.replace("_", " "),
        "license": license_.value,
        "module": names.module,
        "name": names.name,
        "summary": names.kind.summary,
        "test_dependencies": _listed("pytest>=8.4", _requirement("slime-testing")),
        "year": str(datetime.now(UTC).year),
    }


def _listed(*requirements: str) -> str:
    return ", ".join(f'"{each}"' for each in requirements)


def _bounded(requirement: str) -> str:
    return _requirement(requirement) if requirement in first_party() else requirement


def _requirement(dist: str, version: str = __version__) -> str:
    major, minor = map(int, version.split(".")[:2])
    if major:
        return f"{dist}>={major}.{minor},<{major + 1}"
    return f"{dist}>=0.{minor},<0.{minor + 1}"


def _fill(source: str, words: Mapping[str, str]) -> str:
    template = _TEMPLATES.joinpath(*source.split("/")).read_text(encoding="utf-8")
    return Template(template).substitute(words)


__all__ = ["KINDS", "Kind", "License", "Names", "keep_core_arguments", "render", "write_package"]
