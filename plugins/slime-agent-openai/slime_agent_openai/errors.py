"""ApiError: a request that is refused or failed, as every wire can say it."""

from slime_core.errors import SlimeError


class ApiError(SlimeError):
    """Becomes the error body of the request's own protocol."""

    def __init__(self, status: int, message: str, *, code: str, param: str | None = None, retry: bool = False) -> None:
        """Say what went wrong.

        Args:
            status: of HTTP. SDKs send 408, 409, 429 and 500 and above again.
            message: for whoever reads the agent's log.
            code: short and countable, such as "unsupported_parameter".
            param: where in the request, such as "messages[2].content[0]".
            retry: whether SDKs shall send it again; else they are told not to.
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


IN_SECTION = "in the generator's section of the run file"
"""Where a setting stands that an error names."""


def unsupported(name: str, why: str) -> ApiError:
    """A parameter that is not heeded here: it is refused rather than left aside."""
    return ApiError(400, f"{name} is not supported here: {why}", code="unsupported_parameter", param=name)


def session_closed() -> ApiError:
    """What a session answers whose sample has ended."""
    return refused("this session is closed: its sample has ended", code="session_closed")


def nested_too_deeply() -> ApiError:
    """The answer to a body whose lists and objects are nested too deeply."""
    return refused("the body is nested too deeply: no request needs a hundred levels", code="invalid_json")
