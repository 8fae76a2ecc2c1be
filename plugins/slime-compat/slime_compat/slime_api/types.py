"""Sample as slime's functions know it: the core's, with slime's nested Status and methods, and room for attributes."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import ClassVar

from slime_compat.call import current_call
from slime_core import Sample as CoreSample
from slime_core import Status
from slime_core.sample import Json, scalar_reward

_NAMES = tuple(item.name for item in fields(CoreSample))
_STATUS_OF_FINISH = {"length": Status.TRUNCATED, "abort": Status.ABORTED, "stop": Status.COMPLETED}


class Sample(CoreSample):
    """A sample with slime's methods; an attribute that slime does not have stays with this object alone."""

    Status: ClassVar[type[Status]] = Status

    @classmethod
    def of(cls, sample: CoreSample) -> "Sample":
        """The same sample, sharing its values."""
        return cls(**{name: getattr(sample, name) for name in _NAMES})

    def to_core(self) -> CoreSample:
        """The core's sample; a token of the engine's without a weight version gets the version that made it."""
        call = current_call()
        if not self.weight_versions and call is not None:
            self.weight_versions = sorted(call.versions)
        return CoreSample(**{name: getattr(self, name) for name in _NAMES})

    def append_response_tokens(  # type: ignore[override]  # slime's own signature
        self,
        args: object = None,
        *,
        tokens: Sequence[int],
        log_probs: Sequence[float] | None = None,
        trainable: bool = True,
        meta_info: Mapping[str, Json] | None = None,
        text: str | None = None,
        update_terminal_info: bool = True,
    ) -> None:
        """As slime's: append tokens, and take status and weight version from SGLang's `meta_info`."""
        info = meta_info or {}
        version = str(info.get("weight_version") or current_call_version())
        super().append_response_tokens(
            tokens=list(tokens),
            log_probs=list(log_probs) if log_probs is not None else None,
            trainable=trainable,
            text=text or "",
            weight_version=version if trainable else None,
        )
        finish = info.get("finish_reason")
        if update_terminal_info and isinstance(finish, dict):
            self.status = _STATUS_OF_FINISH.get(str(finish.get("type")), self.status)

    def get_reward_value(self, args: object) -> float:
        """The reward, or its entry `args.reward_key`."""
        key = getattr(args, "reward_key", None)
        if key and isinstance(self.reward, dict):
            return self.reward[key]
        return scalar_reward(self)


def current_call_version() -> str:
    """Version of the newest engine call of the sample that is being generated; "0" outside of one."""
    call = current_call()
    return max(call.versions, key=int) if call is not None and call.versions else "0"


def to_core(sample: CoreSample) -> CoreSample:
    """A sample that a slime function returned, as the core's."""
    return sample.to_core() if isinstance(sample, Sample) else sample
