"""Defines Sample and Group: one generation, and the generations that share a prompt and are normalised together.

Field names are slime's. A sample is mutable while it is in flight; it is frozen, with compact typed arrays, when
its group is finished. `Answer` lists the fields that a sample copies from an engine's output.

Example:

    sample.append_response_tokens(tokens=[5, 9], log_probs=[-0.1, -2.3], weight_version="7")
    sample.append_response_tokens(tokens=[12], trainable=False)        # a tool's answer: mask 0
"""

import enum
import math
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import accumulate, islice
from struct import Struct, error
from typing import NamedTuple, Protocol, TypeAlias, TypeVar, cast

__all__ = [
    "Group",
    "GroupId",
    "Json",
    "Message",
    "PrefixCacheInfo",
    "Sample",
    "SpecInfo",
    "Status",
    "scalar_reward",
]


# Answer: fields of an engine's output that a sample copies; `slime_core.roles.GenerateOutput` implements it.


class Answer(Protocol):
    """What `append_response_tokens` reads from an engine's output."""

    @property
    def tokens(self) -> Sequence[int]:
        """New ids: [n]."""

    @property
    def log_probs(self) -> Sequence[float]:
        """Log-prob of each: [n]."""

    @property
    def versions(self) -> Sequence[tuple[int, int]]:
        """Consecutive spans as (number of tokens, weight version), in order."""


NumberT = TypeVar("NumberT", int, float)
LARGEST = 2**53
"""Largest count or time in a run's files. Floats represent every integer up to it."""


def parse_count(value: object) -> int:
    """Validate a count read from a file.

    Raises:
        ValueError: the value is not an integer, or out of range.
    """
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > LARGEST:
        raise ValueError(f"{str(value)[:40]!r} is not an integer within {LARGEST}")
    return value


def parse_number(value: object) -> float:
    """Validate a time or a measure read from a file.

    Raises:
        ValueError: the value is not a finite number, or out of range.
    """
    if not isinstance(value, int | float) or not abs(value) <= LARGEST:
        raise ValueError(f"{str(value)[:40]!r} is not a number within {LARGEST}")
    return float(value)


def scalar(value: object) -> float | None:
    """A number, a bool, or a scalar of numpy or torch, as a float; None for any other value."""
    item = None if isinstance(value, int | float) else getattr(value, "item", None)
    if callable(item):
        try:
            value = item()
        except (TypeError, ValueError, RuntimeError):  # it holds several
            return None
    try:
        return float(value) if isinstance(value, int | float) else None
    except OverflowError:
        return None


def packed(code: str, values: Sequence[NumberT]) -> Sequence[NumberT]:
    """Numbers as a typed array. A list goes through `struct`, in a third of the time of `array`."""
    whole = values if isinstance(values, array) else Struct(f"{len(values)}{code}").pack(*values)
    return cast(Sequence[NumberT], array(code, whole))


def unpackable(code: str, values: Sequence[object]) -> list[object]:
    """Values that `packed` rejects, and non-finite floats. Fast in the usual case that there are none."""
    try:
        Struct(f"={len(values)}{code}").pack(*values)  # "=": without it, a float too large becomes infinity
        if code != "f" or all_finite(cast(Sequence[float], values)):
            return []
    except (error, OverflowError, TypeError):  # TypeError: numbers of kinds that do not add up
        pass
    return [each for each in values if not _keeps(code, each)]


def _keeps(code: str, value: object) -> bool:
    try:
        (there,) = Struct(code).unpack(Struct(code).pack(value))
    except (error, OverflowError):
        return False
    return math.isfinite(there)


def all_finite(values: Sequence[float]) -> bool:
    """Whether no number is NaN or infinite. Tries the sum first, where either persists: three times as fast."""
    return math.isfinite(sum(values)) or all(map(math.isfinite, values))


Json: TypeAlias = "None | bool | int | float | str | list[Json] | dict[str, Json]"
"""A value that JSON can hold."""

Message: TypeAlias = dict[str, Json]
"""One chat message, OpenAI style: role, content, optional tool calls."""


class Status(enum.Enum):
    """State of a sample."""

    PENDING = "pending"
    """Drawn but not finished."""
    COMPLETED = "completed"
    """The model ended it."""
    TRUNCATED = "truncated"
    """The length budget ended it."""
    ABORTED = "aborted"
    """Interrupted; may be continued or generated again."""
    FAILED = "failed"
    """Generation or scoring failed; the sample carries no training signal."""


class GroupId(NamedTuple):
    """Identity of a group. Every seed and every ledger line derives from it."""

    source: str
    """Name of the data set the prompt came from."""
    epoch: int
    """Pass over the data set, from 0."""
    row: int
    """Row number in the data set, from 0."""
    draw: int
    """Number of groups that the data source drew before this one."""

    def __str__(self) -> str:
        return f"{self.source}:e{self.epoch}:r{self.row}:d{self.draw}"

    @classmethod
    def parse(cls, text: str) -> "GroupId":
        """The inverse of `str(group_id)`; the source may contain colons."""
        source, epoch, row, draw = text.rsplit(":", 3)
        return cls(source, int(epoch[1:]), int(row[1:]), int(draw[1:]))


@dataclass(slots=True)
class SpecInfo:
    """Speculative decoding counters, summed over a sample's engine calls."""

    spec_accept_token_num: int = 0
    spec_draft_token_num: int = 0
    spec_verify_ct: int = 0
    completion_token_num: int = 0


@dataclass(slots=True)
class PrefixCacheInfo:
    """Prefix cache counters in tokens, summed over a sample's engine calls."""

    cached_tokens: int = 0
    total_prompt_tokens: int = 0


_PACKED = {
    "tokens": "i",
    "loss_mask": "b",
    "rollout_log_probs": "f",
    "teacher_log_probs": "f",
    "rollout_top_p_token_ids": "i",
    "rollout_top_p_token_offsets": "i",
    "rollout_routed_experts": "i",
}
"""Fields that a frozen sample holds as typed arrays."""
_KINDS = {"i": "ints of 32 bits", "b": "ints, 0 or 1", "f": "finite numbers that a 32-bit float can hold"}


@dataclass(slots=True)
class Sample:
    """One generation from one prompt, with all its data for training."""

    group_index: int | None = None
    """Number of the group within the run. GRPO's metrics are grouped by it."""
    index: int | None = None
    """Number of the sample within its group, from 0."""
    rollout_id: int | None = None
    """Shared by all samples of one generator call that fanned out; otherwise unique to the sample."""
    prompt: str | list[Message] = ""
    """The text sent to the model, or the chat messages from which it was rendered."""
    tokens: Sequence[int] = field(default_factory=list)
    """Token ids, prompt then response: [len(prompt ids) + response_length]."""
    multimodal_inputs: dict[str, Json] | None = None
    """Raw images, videos or audio of the prompt, as in the row."""
    multimodal_train_inputs: dict[str, Json] | None = None
    """The processor's output for them, for the trainer."""
    multimodal_train_input_id: str | None = None
    """Key of a shared processor output."""
    apply_chat_template_kwargs: dict[str, Json] = field(default_factory=dict)
    """Extra arguments of the chat template for this sample."""
    response: str = ""
    """The decoded response, without special tokens."""
    response_length: int = 0
    """Tokens after the first prompt, tool and environment tokens included."""
    label: Json = None
    """The gold answer, as in the row."""
    reward: float | dict[str, float] | None = None
    """None until scored; a dict if a reward has several named values."""
    loss_mask: Sequence[int] | None = None
    """1 where the token is trained on, else 0: [response_length]."""
    weight_versions: list[str] = field(default_factory=list)
    """Weight version of each span of generated tokens: one per call, or more if the weights changed during a call."""
    rollout_log_probs: Sequence[float] | None = None
    """The sampler's log-probs, 0.0 where not trainable: [response_length]."""
    rollout_top_p_token_ids: Sequence[int] | None = None
    """Ids kept by top-p, ragged over response tokens."""
    rollout_top_p_token_offsets: Sequence[int] | None = None
    """Offset of each token's kept ids: [response_length + 1]."""
    rollout_routed_experts: Sequence[int] | None = None
    """Experts chosen by the sampler, flat [(len(tokens) - 1) * layers * top-k]."""
    remove_sample: bool = False
    """Set by a filter: train on none of its tokens, but count it in metrics and normalisation."""
    teacher_log_probs: Sequence[float] | None = None
    """A teacher's log-probs of the response: [response_length]."""
    status: Status = Status.PENDING
    """State of the sample."""
    metadata: dict[str, Json] = field(default_factory=dict)
    """The row's metadata; free for generators and rewards."""
    generate_function_path: str | None = None
    """Name of the generator that runs this sample, instead of the run's; set by the data source."""
    custom_rm_path: str | None = None
    """Name of the reward that alone scores this sample, instead of the run's; set by the data source."""
    train_metadata: dict[str, Json] | None = None
    """Extra values for the trainer."""
    session_id: str | None = None
    """Identity of a multi-turn session, for routers with session affinity."""
    non_generation_time: float = 0.0
    """Seconds spent in tools and environments."""
    spec_info: SpecInfo = field(default_factory=SpecInfo)
    """Speculative decoding counters."""
    prefix_cache_info: PrefixCacheInfo = field(default_factory=PrefixCacheInfo)
    """Prefix cache counters."""
    source: str = ""
    """Name of the data set the prompt came from."""
    weight_version_ends: list[int] = field(default_factory=list)
    """End of each span of `weight_versions`, counting tools' tokens before it. Has another length if unknown."""
    failure_reason: str | None = None
    """Why it is FAILED, short and countable; becomes the metric `rollout/errors/<reason>`. Details, such as the end of
    a traceback, are in `metadata["failure_detail"]`. A run prints them for the first sample with each reason."""

    def append_response_tokens(
        self,
        *,
        output: Answer | None = None,
        tokens: Sequence[int] | None = None,
        log_probs: Sequence[float] | None = None,
        trainable: bool = True,
        text: str = "",
        weight_version: str | None = None,
    ) -> None:
        """Append the output of one engine call, or the environment's reply to it (`trainable=False`).

        Args:
            output: the result of `ctx.generate`, instead of tokens, log-probs and version. It also has the version of
                each token if the weights changed during the call.
            tokens: ids to append, [n].
            log_probs: the sampler's log-probs, [n]; required exactly if the tokens are trainable.
            trainable: whether the loss mask of these tokens is 1.
            text: their decoded text, appended to `response`.
            weight_version: their weight version; required exactly if they are trainable.

        Raises:
            ValueError: both `output` and parts of one, or neither; wrong lengths; or trainable tokens that lack a part.
        """
        if output is not None:
            if (tokens, log_probs, weight_version) != (None, None, None):
                raise ValueError("an output has its own tokens, log_probs and weight versions: pass it alone")
            self._append(output.tokens, output.log_probs if trainable else None, text)
            self._note(output.versions)
            return
        if tokens is None:
            raise ValueError("nothing to append: pass output=, what ctx.generate returned, or tokens=")
        if trainable and (log_probs is None or weight_version is None):
            raise ValueError("trainable tokens need log_probs and a weight_version; tool output has trainable=False")
        if not trainable and log_probs is not None:
            raise ValueError("tokens that are not trainable carry no log_probs")
        if log_probs is not None and len(log_probs) != len(tokens):
            raise ValueError(f"{len(tokens)} tokens but {len(log_probs)} log_probs")
        self._append(tokens, log_probs, text)
        if weight_version is not None:
            self.weight_versions = [*self.weight_versions, weight_version]

    def _append(self, tokens: Sequence[int], log_probs: Sequence[float] | None, text: str) -> None:
        """Append to columns without changing lists that a copy of this sample may share."""
        count = len(tokens)
        self.tokens = [*self.tokens, *tokens]
        self.loss_mask = [*(self.loss_mask or ()), *([int(log_probs is not None)] * count)]
        self.rollout_log_probs = [*(self.rollout_log_probs or ()), *([0.0] * count if log_probs is None else log_probs)]
        self.response_length += count
        self.response += text

    def _note(self, versions: Sequence[tuple[int, int]]) -> None:
        """Record the versions of the last tokens, unless versions of earlier tokens are unknown."""
        if len(self.weight_version_ends) == len(self.weight_versions):
            begin = self.response_length - sum(count for count, _ in versions)
            ends = accumulate((count for count, _ in versions), initial=begin)
            self.weight_version_ends = [*self.weight_version_ends, *islice(ends, 1, None)]
        self.weight_versions = [*self.weight_versions, *(str(version) for _, version in versions)]

    @property
    def prompt_length(self) -> int:
        """Tokens before the response."""
        return len(self.tokens) - self.response_length

    @property
    def effective_response_length(self) -> int:
        """Number of trained response tokens: the mask's sum, or `response_length` without a mask."""
        return sum(self.loss_mask) if self.loss_mask is not None else self.response_length

    @property
    def version_spans(self) -> Iterator[tuple[int, int, int]]:
        """Start, end and weight version of each span of generated tokens; none if unknown."""
        ends = self.weight_version_ends
        if len(ends) == len(self.weight_versions):
            yield from zip((0, *ends), ends, map(int, self.weight_versions), strict=False)

    @property
    def oldest_weight_version(self) -> int | None:
        """Oldest weight version among trained tokens; among all tokens if none is trained or spans are unknown."""
        if len(set(self.weight_versions)) > 1 and self.loss_mask is not None:
            trained = [version for begin, end, version in self.version_spans if any(self.loss_mask[begin:end])]
            if trained:
                return min(trained)
        return min(map(int, self.weight_versions), default=None)

    def problems(self) -> Iterator[str]:
        """Inconsistencies of a finished sample, one sentence each."""
        for name, code in _PACKED.items():
            values = getattr(self, name)
            if values is not None and (strange := unpackable(code, values)):
                yield f"{name} holds {strange[0]!r:.80}; expected {_KINDS[code]}"
                return
        length = self.response_length
        if not 0 <= length <= len(self.tokens):
            yield f"response_length is {length} with {len(self.tokens)} tokens in all"
        for name in ("loss_mask", "rollout_log_probs", "teacher_log_probs"):
            values = getattr(self, name)
            if values is not None and len(values) != length:
                yield f"{name} has {len(values)} entries for {length} response tokens"
        mask = self.loss_mask or ()
        ones = mask.count(1)
        if ones < len(mask) and ones + mask.count(0) < len(mask):
            yield "loss_mask holds values other than 0 and 1"
        if ones and self.rollout_log_probs is None:
            yield "trainable tokens have no rollout_log_probs"
        if ones and not self.weight_versions:
            yield "trainable tokens have no weight version"
        rewards = self.reward.values() if isinstance(self.reward, dict) else (self.reward,)
        if not all(value is None or math.isfinite(value) for value in rewards):
            yield f"reward {self.reward!r} is not finite"

    def freeze(self) -> None:
        """Pack the ragged columns into typed arrays; called once, when the sample's group is done."""
        for name, code in _PACKED.items():
            values = getattr(self, name)
            if values is not None:
                setattr(self, name, packed(code, values))

    def to_dict(self) -> dict[str, Json]:
        """Every field as plain JSON, `status` by its value."""
        return {item.name: plain_json(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Json]) -> "Sample":
        """The inverse of `to_dict`.

        Raises:
            ValueError: an unknown key or status.
        """
        known = {item.name for item in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"a Sample has no field {', '.join(unknown)}; its fields are {', '.join(sorted(known))}")
        return cls(**{name: revived(name, value) for name, value in values.items()})  # type: ignore[arg-type]  # from a file: a wrong type is refused by its reader


@dataclass(slots=True)
class Group:
    """The samples of one drawn prompt, which are normalised, filtered, buffered and trained together."""

    id: GroupId
    """Its identity, for seeds and the ledger."""
    samples: list[Sample]
    """At least one; more than `n_samples_per_prompt` where a generator fans out."""
    metadata: dict[str, Json] = field(default_factory=dict)
    """The buffer's own notes, kept in checkpoints."""

    def freeze(self) -> None:
        """Freeze every sample."""
        for sample in self.samples:
            sample.freeze()

    @property
    def rewards(self) -> list[float]:
        """Rewards of the scored samples. A dict reward counts by its "score" entry, else by its first."""
        return [scalar_reward(sample) for sample in self.samples if sample.reward is not None]

    @property
    def oldest_weight_version(self) -> int | None:
        """Version of the oldest trainable token; None before anything was generated."""
        versions = (sample.oldest_weight_version for sample in self.samples)
        return min((version for version in versions if version is not None), default=None)

    def to_dict(self) -> dict[str, Json]:
        """Plain JSON."""
        return {
            "id": str(self.id),
            "samples": [sample.to_dict() for sample in self.samples],
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Json]) -> "Group":
        """The inverse of `to_dict`, frozen again."""
        samples = [Sample.from_dict(each) for each in values["samples"]]  # type: ignore[union-attr, arg-type]  # the same
        group = cls(GroupId.parse(str(values["id"])), samples, dict(values["metadata"]))  # type: ignore[arg-type]  # the same
        group.freeze()
        return group


SCORE = "score"
"""Key of the number that training uses if a reward is a dict."""


def scalar_reward(sample: Sample) -> float:
    """The number that training uses.

    Raises:
        ValueError: the sample has no reward.
    """
    reward = sample.reward
    if reward is None:
        raise ValueError(f"sample {sample.index} of group {sample.group_index} has no reward")
    if isinstance(reward, dict):
        return reward[SCORE] if SCORE in reward else next(iter(reward.values()))
    return reward


def plain_json(value: object) -> Json:
    """A field of a sample as plain JSON.

    Raises:
        TypeError: the value is not representable in JSON.
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case enum.Enum():
            return plain_json(value.value)
        case array():
            return value.tolist()
        case list() | tuple():
            return [plain_json(each) for each in value]
        case dict():
            return {str(key): plain_json(each) for key, each in value.items()}
        case SpecInfo() | PrefixCacheInfo():
            return {item.name: getattr(value, item.name) for item in fields(value)}
    raise TypeError(f"a sample holds {type(value).__name__} {value!r:.80}, which JSON cannot keep")


_REVIVED: Mapping[str, Callable[[Json], object]] = {
    "status": Status,
    "spec_info": lambda value: SpecInfo(**cast(dict[str, int], value)),
    "prefix_cache_info": lambda value: PrefixCacheInfo(**cast(dict[str, int], value)),
}


def revived(name: str, value: Json) -> object:
    """A field of a sample from plain JSON: the inverse of `plain_json`."""
    return _REVIVED[name](value) if name in _REVIVED else value
