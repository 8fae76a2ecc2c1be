"""Defines every exception that slime-core raises on purpose, and makes untrusted text safe for a terminal.

All of them derive from SlimeError and can be pickled. Catch the class that fits the cause:

    ConfigError, UnknownName                      a key, value or name in the run file or on the command line
    PluginError, ContractError                    a plugin that fails to load, raises, or breaks its role's contract
    DataError, ModelError                         a prompt file, a model directory
    RunFolderError, CheckpointError               a run folder, one of its checkpoints
    WorkerError, RequestError, LimitError         a worker process, a request to an engine, a limit on one sample
    RolloutError, NonFiniteError, MismatchError   too many failures; NaN or infinity; trainer and sampler disagree
    StopRun                                       a run hook asks to finish the step, save and end
"""

import difflib
import re
import traceback
from collections.abc import Iterable

__all__ = [
    "CheckpointError",
    "ConfigError",
    "ContractError",
    "DataError",
    "LimitError",
    "MismatchError",
    "ModelError",
    "NonFiniteError",
    "PluginError",
    "RequestError",
    "RolloutError",
    "RunFolderError",
    "SlimeError",
    "StopRun",
    "UnknownName",
    "WorkerError",
    "did_you_mean",
    "drawn",
    "last_of",
    "one_line",
    "printable",
    "styled",
]


# The one exception tree: everything slime-core raises on purpose.


class SlimeError(Exception):
    """Base of every error that slime-core raises on purpose; the command line prints it without a traceback."""


class ConfigError(SlimeError, ValueError):
    """A key, a value or a combination in the run file or on the command line is invalid."""


class UnknownName(SlimeError, LookupError):
    """An unregistered name; the message lists available names and the nearest spelling."""


class PluginError(SlimeError):
    """A plugin fails to load, or a loaded plugin raises or misbehaves."""


class ContractError(PluginError):
    """A plugin's result breaks its role's contract; names plugin, role, sample and field."""


class DataError(SlimeError, ValueError):
    """A prompt file cannot be read; names the file and the line."""


class ModelError(SlimeError, ValueError):
    """A model directory cannot be used; names the file that is missing or wrong."""


class RunFolderError(SlimeError):
    """A run folder cannot be used: locked by another process, read-only or full."""


class CheckpointError(RunFolderError):
    """A checkpoint is damaged, missing or from another run."""


class WorkerError(SlimeError):
    """A worker process died, hung or raised; the text contains the remote traceback."""


class RequestError(SlimeError):
    """Several engines died or hung on a request, or one did while streaming. Fails the sample, not the run."""


class LimitError(SlimeError):
    """A sample's engine call exceeds the run's limit of context or of calls."""


class RolloutError(SlimeError):
    """The rollout cannot continue: no group was kept, or too many samples failed."""


class NonFiniteError(SlimeError):
    """NaN or infinity in a loss, a gradient or a log-prob."""


class MismatchError(SlimeError):
    """The trainer's log-probs are further from the sampler's than the run allows."""


class StopRun(SlimeError):
    """Raised by a run hook to finish the step, save and end with success."""


LONGEST_TEXT = 2_000
"""Maximum characters of a plugin's error or traceback; the middle is cut."""


def error_text(error: BaseException) -> str:
    """Shortened text of a plugin's error, even if its `__str__` raises."""
    try:
        return shortened(str(error))
    except BaseException as worse:
        return f"(its text cannot be read: {type(worse).__name__})"


def traceback_text(error: BaseException | None) -> str:
    """Line break and traceback, from its first frame outside slime_core and slime_testing; empty if there is none.

    The error's own text is left out.
    """
    while isinstance(error, PluginError):
        error = error.__cause__
    trace = error.__traceback__ if error is not None else None
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__")).startswith(
        ("slime_core.", "slime_testing.")
    ):
        trace = trace.tb_next
    return f"\n{shortened(''.join(traceback.format_tb(trace)).rstrip())}" if trace is not None else ""


def shortened(text: str) -> str:
    """A plugin's text, shortened for logs."""
    half = LONGEST_TEXT // 2
    return text if len(text) <= LONGEST_TEXT else f"{text[:half]} [...] {text[-half:]}"


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A sentence to append, " Did you mean 'math'?", or "" without a near match. Ignores case, '-' and '_'."""
    spellings: dict[str, list[str]] = {}
    for choice in sorted(choices):
        spellings.setdefault(_plain(choice), []).append(choice)
    near = difflib.get_close_matches(_plain(word), spellings, n=1)
    if not near:
        return ""
    best = max(spellings[near[0]], key=lambda choice: difflib.SequenceMatcher(None, word, choice).ratio())
    return f" Did you mean {best!r}?"


def _plain(word: str) -> str:
    return word.lower().replace("_", "-")


_UNSAFE = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # bidirectional, separators, invisible
    "\ud800-\udfff\U000e0000-\U000e0fff"  # halves of surrogate pairs, tags
)
_ANY = re.compile(f"[{_UNSAFE}]")
_CODE = r"(?:[0-4]|2[234]|[39][0-79]|38;5;\d{1,3}|38;2(?:;\d{1,3}){3})"
_STYLED = re.compile(rf"(\x1b\[(?:{_CODE}(?:;{_CODE})*)?m)|[{_UNSAFE}]")
"""Colours, bold, dim, italic and underline, as click and rich write them; nothing that hides or moves text."""
_DRAWN = re.compile(rf"(\x1b\[[0-9;?]*[A-Za-z]|\r)|[{_UNSAFE}]")
"""Escape sequences and carriage returns that a progress bar needs."""


def printable(text: str) -> str:
    r"""Escape control characters of terminals, as `\u001b`; keeps newlines, tabs, and the meaning of JSON."""
    return _ANY.sub(_escaped, text)


def styled(text: str) -> str:
    """Like `printable`, but keeps colours and styles."""
    return _STYLED.sub(_escaped, text)


def drawn(text: str) -> str:
    """Like `printable`, but keeps cursor movements, for progress bars."""
    return _DRAWN.sub(_escaped, text)


def one_line(text: str, instead: str = "\ufffd") -> str:
    """A text on one line, with `instead` for unprintable characters."""
    return _ANY.sub(instead, " ".join(text.split()))


def last_of(text: str, width: int) -> str:
    """The last `width` characters of a text, on one line."""
    line = one_line(text)
    return line if len(line) <= width else f"…{line[1 - width :]}"


def _escaped(found: re.Match[str]) -> str:
    if found.lastindex:
        return found[0]
    code = ord(found[0])
    pair = (code,) if code <= 0xFFFF else (0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF))  # as JSON writes it
    return "".join(f"\\u{each:04x}" for each in pair)
