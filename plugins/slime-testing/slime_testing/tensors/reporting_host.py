"""ReportingHost: runs a rank like a run, and reports its steps and weights to the contract of trainers."""

from slime_core.errors import ContractError, NonFiniteError
from slime_core.roles import StepResult, TrainBatch
from slime_train.rank_host import RankHost


class ReportingHost(RankHost):
    """One rank of the contract's trainer."""

    def attempt(self, batch: TrainBatch) -> StepResult | str:
        """The result of a rollout with one step, or the text of the error that stopped it on this rank."""
        try:
            self.begin_rollout([batch])
            return self.train_step(0)
        except (NonFiniteError, ContractError) as error:
            return f"{type(error).__name__}: {error}"

    def numbers(self) -> dict[str, list[float]]:
        """All weights that this rank yields, as lists of numbers, by name."""
        return {name: tensor.flatten().tolist() for name, tensor in self._rank.weights()}

    def sizes(self) -> dict[str, int]:
        """Number of elements of each slot."""
        return {slot.name: slot.numel for slot in self.weight_slots()}
