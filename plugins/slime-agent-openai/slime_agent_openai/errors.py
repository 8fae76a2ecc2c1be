"""ApiError: the refusal of a request, for any protocol. AgentError: the failure of an agent's sample."""

import signal
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException

from slime_core.errors import SlimeError


class ApiError(SlimeError):
    """Becomes an error body in the request's protocol."""

    def __init__(self, status: int, message: str, *, code: str, param: str | None = None, retry: bool = False) -> None:
        """`message` appears in the agent's log; `code` names the kind of error ("unsupported_parameter").

        `param` is the place in the request, such as "messages[2].content[0]". SDKs retry only if `retry`.
        """
        super().__init__(message)
        self.status, self.message, self.code, self.param, self.retry = status, message, code, param, retry

    @property
    def kind(self) -> str:
        """The error class, by the name that OpenAI and Anthropic share."""
        match self.status:
            case 401:
                return "authentication_error"
            case 404:
                return "not_found_error"
            case status if status >= 500:
                return "api_error"
        return "invalid_request_error"


def bad_request(message: str, param: str | None = None, code: str = "invalid_request") -> ApiError:
    """An invalid request that a retry does not fix."""
    return ApiError(400, message, code=code, param=param)


IN_SECTION = "in the generator's section of the run file"  # Place of a setting, for error messages


def unsupported(name: str, why: str) -> ApiError:
    """Error for a parameter without effect here, which is refused rather than ignored."""
    return ApiError(400, f"{name} is not supported here: {why}", code="unsupported_parameter", param=name)


def session_closed() -> ApiError:
    """Error for a request to a session whose sample has ended."""
    return bad_request("this session is closed: its sample has ended", code="session_closed")


def nested_too_deeply() -> ApiError:
    """Error for a body whose lists and objects are nested too deeply."""
    return bad_request("the body is nested too deeply; send fewer than 100 levels", code="invalid_json")


MAX_DETAIL = 800  # Characters of an agent's last output that an error shows
_PACKAGE = Path(__file__).parent
_LIBRARY_PATHS = (*(sysconfig.get_paths()[each] for each in ("stdlib", "platstdlib", "purelib", "platlib")), "<")
"""Paths of library code that an agent uses but does not own."""


class AgentError(SlimeError):
    """An agent failed or was stopped."""

    def __init__(self, reason: str, detail: str, *, shared: bool = False) -> None:
        """`reason` names the kind of failure ("agent_KeyError"), `detail` is the agent's last output.

        `shared`: other agents ran in the process that ended, so the cause is unknown: run the agent again, alone.
        """
        super().__init__(f"{reason}: {detail[-MAX_DETAIL:]}")
        self.reason, self.detail, self.shared = reason, detail[-MAX_DETAIL:], shared


def timeout_message(seconds: float) -> str:
    """Message for an agent that exceeded its time limit."""
    return f"the agent was still running after its limit of {seconds:g} s. `seconds` {IN_SECTION} sets the limit"


def ended_reason(code: int) -> str:
    """Failure reason for the end of a process: its exit code or, below 0, its signal."""
    if code == -signal.SIGKILL:
        return "agent_killed"
    return f"agent_exit_{code}" if code >= 0 else f"agent_signal_{-code}"


def traceback_of(error: BaseException) -> str:
    """The end of an error's traceback: the first line, the last line and the agent's own lines."""
    report = TracebackException.from_exception(error)
    cause: TracebackException | None = report
    while cause is not None:
        cause.stack = StackSummary.from_list(list(_agent_frames(cause.stack)))
        cause = cause.__cause__ or cause.__context__
    text = "".join(report.format())
    return text if len(text) <= MAX_DETAIL else text[-MAX_DETAIL:].partition("\n")[2] or text[-MAX_DETAIL:]


def _agent_frames(stack: StackSummary) -> Iterator[FrameSummary]:
    frames = [each for each in stack if Path(each.filename).parent != _PACKAGE]
    for each in frames:
        if each in (frames[0], frames[-1]) or not each.filename.startswith(_LIBRARY_PATHS):
            yield FrameSummary(each.filename, each.lineno, each.name, line=each.line)


def output_tail(output: str) -> str:
    """The end of a process's output; if that is a Python crash report, the beginning of the report."""
    crash = output.rfind("Fatal Python error")
    return output[crash:][:MAX_DETAIL] if crash >= 0 else output.strip()[-MAX_DETAIL:]
