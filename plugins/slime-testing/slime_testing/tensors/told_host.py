"""ToldHost: a rank's host as in a run, with reports for the contract of trainers."""

from slime_core.errors import ContractError, NonFiniteError
from slime_core.roles import StepResult, TrainBatch
from slime_train.rank_host import RankHost


class ToldHost(RankHost):
    """One rank of the contract's trainer."""

    def attempt(self, batch: TrainBatch) -> StepResult | str:
        """The result of a rollout with one step, or the error that stopped it on this rank, as text."""
        try:
            self.begin_rollout([batch])
            return self.train_step(0)
        except (NonFiniteError, ContractError) as error:
            return f"{type(error).__name__}: {error}"

    def numbers(self) -> dict[str, list[float]]:
        """All values that `weights` yields on this rank, by name."""
        return {name: tensor.flatten().tolist() for name, tensor in self._rank.weights()}

    def sizes(self) -> dict[str, int]:
        """Number of elements of each slot."""
        return {slot.name: slot.numel for slot in self.weight_slots()}
