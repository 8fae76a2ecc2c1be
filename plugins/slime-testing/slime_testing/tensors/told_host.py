"""ToldHost: what the contract of trainers starts: a rank's host as in a run, which also reports on its rank."""

from slime_core.errors import ContractError, NonFiniteError
from slime_core.roles import StepResult, TrainBatch
from slime_train.rank_host import RankHost


class ToldHost(RankHost):
    """One rank of the contract's trainer."""

    def attempt(self, batch: TrainBatch) -> StepResult | str:
        """A rollout of one step, or the error that stopped it here, as text."""
        try:
            self.begin_rollout([batch])
            return self.train_step(0)
        except (NonFiniteError, ContractError) as error:
            return f"{type(error).__name__}: {error}"

    def numbers(self) -> dict[str, list[float]]:
        """What `weights` yields on this rank, to its end, by name."""
        return {name: tensor.flatten().tolist() for name, tensor in self._rank.weights()}

    def sizes(self) -> dict[str, int]:
        """How many numbers each slot has."""
        return {slot.name: slot.numel for slot in self.weight_slots()}
