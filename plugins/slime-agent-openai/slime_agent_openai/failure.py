"""AgentError: why an agent's sample failed."""

import signal
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException

from slime_core.errors import SlimeError

SHOWN = 800
"""Characters of what an agent said last."""
_HERE = Path(__file__).parent
_OF_OTHERS = (*(sysconfig.get_paths()[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")), "<")
"""Where the code lies that the agent only uses."""


class AgentError(SlimeError):
    """An agent failed, or was ended."""

    def __init__(self, reason: str, detail: str, *, shared: bool = False) -> None:
        """Say why.

        Args:
            reason: short and countable, such as "agent_KeyError" or "agent_exit_3".
            detail: what it said last.
            shared: whether others ran in the process that ended, so that nobody knows whose fault it was: run it
                again, alone.
        """
        super().__init__(f"{reason}: {detail[-SHOWN:]}")
        self.reason, self.detail, self.shared = reason, detail[-SHOWN:], shared


def late(seconds: float) -> str:
    """What to say of an agent that takes too long."""
    return f"it had not ended after {seconds:g} s, `seconds` of the generator's section"


def ended_reason(code: int) -> str:
    """What to call the end of a process: by its code or, below 0, its signal."""
    if code == -signal.SIGKILL:
        return "agent_killed"
    return f"agent_exit_{code}" if code >= 0 else f"agent_signal_{-code}"


def raised(error: BaseException) -> str:
    """The end of its traceback, of which the lines stay that are the agent's own, the first and the last."""
    told = TracebackException.from_exception(error)
    seen: TracebackException | None = told
    while seen is not None:
        seen.stack = StackSummary.from_list(list(_own(seen.stack)))
        seen = seen.__cause__ or seen.__context__
    text = "".join(told.format())
    return text if len(text) <= SHOWN else text[-SHOWN:].partition("\n")[2] or text[-SHOWN:]


def _own(stack: StackSummary) -> Iterator[FrameSummary]:
    """Without what called the agent, and without the marks below a line, which say less than they take up."""
    frames = [each for each in stack if Path(each.filename).parent != _HERE]
    for each in frames:
        if each in (frames[0], frames[-1]) or not each.filename.startswith(_OF_OTHERS):
            yield FrameSummary(each.filename, each.lineno, each.name, line=each.line)


def last_words(output: str) -> str:
    """What a process said last; of Python's own account of a crash the beginning, where it was last."""
    crash = output.rfind("Fatal Python error")
    return output[crash:][:SHOWN] if crash >= 0 else output.strip()[-SHOWN:]
