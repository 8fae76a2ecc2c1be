"""LengthBias: whether what is trained on is shorter than what was generated, as it is wherever late samples are lost.

Example:

    bias = LengthBias()
    bias.finished(group)
    bias.handed_over(group)
    bias.value                  # 0.0: on average as long
"""

from collections.abc import Mapping

from slime_core.sample import Group, Json


class LengthBias:
    """Mean response length of the groups that were handed over so far, against that of all that were kept so far."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self._all, self._given = [0, 0], [0, 0]

    def finished(self, group: Group) -> None:
        """A kept group; [tokens, samples] are added up."""
        _add(self._all, group)

    def handed_over(self, group: Group) -> None:
        """One of them goes to training."""
        _add(self._given, group)

    @property
    def value(self) -> float:
        """Ratio of the means, less 1: -0.1 says that the trained ones are a tenth shorter."""
        if not self._given[0] or not self._all[0]:
            return 0.0
        return (self._given[0] / self._given[1]) / (self._all[0] / self._all[1]) - 1.0

    def state_dict(self) -> dict[str, Json]:
        """The sums so far, for a checkpoint."""
        return {"all": list(self._all), "given": list(self._given)}

    def load_state_dict(self, state: Mapping[str, Json]) -> None:
        """Continue from saved sums."""
        self._all, self._given = _sums(state["all"]), _sums(state["given"])


def _add(sums: list[int], group: Group) -> None:
    sums[0] += sum(sample.response_length for sample in group.samples)
    sums[1] += len(group.samples)


def _sums(saved: Json) -> list[int]:
    assert isinstance(saved, list)
    return [int(str(each)) for each in saved]
