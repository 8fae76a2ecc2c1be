"""ApiError: why a request is refused, as every wire can write it. AgentError: why an agent's sample failed."""

import signal
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException

from slime_core.errors import SlimeError


class ApiError(SlimeError):
    """Becomes the error body of the request's own protocol."""

    def __init__(self, status: int, message: str, *, code: str, param: str | None = None, retry: bool = False) -> None:
        """`message` is for the reader of the agent's log; `code` is short and countable ("unsupported_parameter").

        `param` says where in the request, as "messages[2].content[0]"; SDKs repeat it if `retry`, and else do not.
        """
        super().__init__(message)
        self.status, self.message, self.code, self.param, self.retry = status, message, code, param, retry

    @property
    def kind(self) -> str:
        """The class of error that both OpenAI and Anthropic know."""
        match self.status:
            case 401:
                return "authentication_error"
            case 404:
                return "not_found_error"
            case status if status >= 500:
                return "api_error"
        return "invalid_request_error"


def refused(message: str, param: str | None = None, code: str = "invalid_request") -> ApiError:
    """A request that no repetition mends."""
    return ApiError(400, message, code=code, param=param)


IN_SECTION = "in the generator's section of the run file"  # Where a setting stands that an error names


def unsupported(name: str, why: str) -> ApiError:
    """A parameter that is not heeded here: it is refused rather than left aside."""
    return ApiError(400, f"{name} is not supported here: {why}", code="unsupported_parameter", param=name)


def session_closed() -> ApiError:
    """What a session answers whose sample has ended."""
    return refused("this session is closed: its sample has ended", code="session_closed")


def nested_too_deeply() -> ApiError:
    """The answer to a body whose lists and objects are nested too deeply."""
    return refused("the body is nested too deeply: no request needs a hundred levels", code="invalid_json")


SHOWN = 800  # Characters of what an agent said last
_HERE = Path(__file__).parent
_OF_OTHERS = (*(sysconfig.get_paths()[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")), "<")
"""Where the code lies that the agent only uses."""


class AgentError(SlimeError):
    """An agent failed, or was ended."""

    def __init__(self, reason: str, detail: str, *, shared: bool = False) -> None:
        """`reason` is short and countable ("agent_KeyError"), `detail` what the agent said last.

        `shared`: others ran in the process that ended, so that the cause is unknown: run it again, alone.
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
    frames = [each for each in stack if Path(each.filename).parent != _HERE]
    for each in frames:
        if each in (frames[0], frames[-1]) or not each.filename.startswith(_OF_OTHERS):
            yield FrameSummary(each.filename, each.lineno, each.name, line=each.line)


def last_words(output: str) -> str:
    """What a process said last; of Python's own account of a crash the beginning, where it was last."""
    crash = output.rfind("Fatal Python error")
    return output[crash:][:SHOWN] if crash >= 0 else output.strip()[-SHOWN:]
