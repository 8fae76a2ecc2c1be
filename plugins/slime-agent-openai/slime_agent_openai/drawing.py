"""Drawing: the run's sampling, with what an agent may change of it: nothing in training, all there is in evaluation.

Example:

    sampling, is_aside = drawn(context.sampling, request, is_free=context.evaluation, on_sampling="refuse")
"""

from dataclasses import replace
from typing import Literal

from slime_agent_openai.errors import ApiError, refused, unsupported
from slime_agent_openai.request import Request, Wanted
from slime_core.roles import SamplingParams

LEAVE_OUT = 'leave it out, or set on_sampling = "ignore" in the generator\'s section of the run file'


def drawn(
    own: SamplingParams, request: Request, *, is_free: bool, on_sampling: Literal["refuse", "ignore"]
) -> tuple[SamplingParams, bool]:
    """What to draw a reply with, and whether something of what its agent wants was left aside.

    Args:
        own: the run's.
        request: what the agent wants.
        is_free: whether it may have what is other than the run's.
        on_sampling: what becomes of what it may not have.

    Raises:
        ApiError: it is refused; or it is none that anything can be drawn with.
    """
    aside = [wanted for wanted in request.sampling if not _may(own, wanted, is_free=is_free)]
    if aside and on_sampling == "refuse":
        raise _refusal(own, aside[0])
    taken = {each.setting: each for each in request.sampling if each not in aside and each.value != _of(own, each)}
    if not taken and not request.stop:
        return own, bool(aside)
    try:
        values = {name: each.value for name, each in taken.items()}
        return replace(own, stop=(*own.stop, *request.stop), **values), bool(aside)  # type: ignore[arg-type]  # keys and types were checked above
    except ValueError as error:
        raise refused(str(error), next((each.field for each in taken.values()), "stop")) from None


def _may(own: SamplingParams, wanted: Wanted, *, is_free: bool) -> bool:
    return bool(wanted.setting) and (is_free or wanted.value == _of(own, wanted))


def _refusal(own: SamplingParams, wanted: Wanted) -> ApiError:
    if not wanted.setting:
        return unsupported(wanted.field, f"the model draws from its own distribution; {LEAVE_OUT}")
    runs, theirs = _told(_of(own, wanted)), _told(wanted.value)
    return unsupported(wanted.field, f"the policy is trained with {runs}, not {theirs}; {LEAVE_OUT}")


def _of(own: SamplingParams, wanted: Wanted) -> float:
    value: float = getattr(own, wanted.setting)
    return value


def _told(value: float) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"
