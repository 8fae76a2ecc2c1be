"""Versions: which weights made which token of a finished sample, and what older weights made taken out of its loss.

A sample that was filled by `append_response_tokens(output=...)` knows. Of any other one, a fork or what a generator put
together by hand, the tokens are found among the engine's answers by their ids and log-probs, in order.

Example:

    note_versions(samples, calls.answers)
    for sample in samples:
        mask_stale(sample)
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby

from slime_core.roles import GenerateOutput
from slime_core.sample import Sample


def note_versions(samples: Sequence[Sample], answers: Sequence[GenerateOutput]) -> None:
    """Note which version made which tokens, of samples that do not know, where there is more than one version."""
    if len({version for answer in answers for _, version in answer.versions}) < 2:
        return
    made = _Made(answers)
    for sample in samples:
        if len(sample.weight_version_ends) != len(sample.weight_versions):
            found = list(_runs(made.versions_of(sample)))
            sample.weight_versions = [str(version) for version, _ in found]
            sample.weight_version_ends = [end for _, end in found]


def mask_stale(sample: Sample) -> None:
    """Mask tokens that older weights made than the sample's newest; what is masked already stays so."""
    stretches = list(sample.stretches)
    newest = max((version for *_, version in stretches), default=0)
    stale = [(begin, end) for begin, end, version in stretches if version < newest]
    if not stale or sample.loss_mask is None:
        return
    mask = list(sample.loss_mask)
    for begin, end in stale:
        mask[begin:end] = [0] * len(mask[begin:end])
    sample.loss_mask = mask


def _runs(versions: Sequence[int | None]) -> Iterator[tuple[int, int]]:
    """Version and end of each stretch of tokens; tokens that no weights made belong to the stretch after them."""
    end = 0
    for version, run in groupby(versions):
        end += sum(1 for _ in run)
        if version is not None:
            yield version, end


class _Made:
    """All that the engine answered to one sample, to look tokens up in."""

    def __init__(self, answers: Sequence[GenerateOutput]) -> None:
        self._ids = [list(answer.tokens) for answer in answers]
        self._log_probs = [array("f", answer.log_probs) for answer in answers]
        self._versions = [[version for count, version in each.versions for _ in range(count)] for each in answers]
        self._oldest = min(version for versions in self._versions for version in versions)
        self._places: defaultdict[tuple[int, float], list[tuple[int, int]]] = defaultdict(list)
        for number, ids in enumerate(self._ids):
            for place, pair in enumerate(zip(ids, self._log_probs[number], strict=True)):
                self._places[pair].append((number, place))

    def versions_of(self, sample: Sample) -> list[int | None]:
        """The version of each response token, None where no weights made it.

        One that is trained on and not to be found counts as the oldest: it is not trained on rather than taken for new.
        """
        length = sample.response_length
        ids = list(sample.tokens)[len(sample.tokens) - length :]
        mask = sample.loss_mask or [0] * length
        log_probs = array("f", sample.rollout_log_probs or [0.0] * length)
        found: list[int | None] = []
        at: tuple[int, int] | None = None
        for place in range(length):
            at = None if at is None else (at[0], at[1] + 1)
            if at is None or not self._is(at, ids[place], log_probs[place] if mask[place] else None):
                at = self._longest(ids, log_probs, mask, place) if mask[place] else None
            unknown = self._oldest if mask[place] else None
            found.append(unknown if at is None else self._versions[at[0]][at[1]])
        return found

    def _is(self, at: tuple[int, int], token: int, log_prob: float | None) -> bool:
        """Whether an answer has this token there; its log-prob is compared where it is known."""
        number, place = at
        if place >= len(self._ids[number]) or self._ids[number][place] != token:
            return False
        return log_prob is None or self._log_probs[number][place] == log_prob

    def _longest(
        self, ids: Sequence[int], log_probs: Sequence[float], mask: Sequence[int], begin: int
    ) -> tuple[int, int] | None:
        """Where the answers have the longest part of what follows; of equals, that of the oldest weights."""
        best: tuple[tuple[int, int], tuple[int, int]] | None = None
        for number, place in self._places.get((ids[begin], log_probs[begin]), ()):
            length = 0
            for there in range(begin, len(ids)):
                known = log_probs[there] if mask[there] else None
                if not self._is((number, place + length), ids[there], known):
                    break
                length += 1
            key = (length, -self._versions[number][place])
            if best is None or key > best[0]:
                best = key, (number, place)
        return None if best is None else best[1]
