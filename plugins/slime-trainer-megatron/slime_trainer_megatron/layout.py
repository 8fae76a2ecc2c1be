"""Layout: which ranks hold which part of the model. Imports no torch.

Megatron numbers ranks by tensor, then context, then data, then pipeline parallelism.

Example:

    layout = Layout(ranks=8, tensor=2, pipeline=2)
    layout.shares                          # (0, 0, 1, 1, 0, 0, 1, 1)
    layout.check(model)                    # ConfigError: 6 heads over 4 ranks ...
"""

import math
from dataclasses import dataclass

from slime_core.errors import ConfigError
from slime_trainer_megatron.families import Model, Weight


@dataclass(frozen=True, slots=True)
class Layout:
    """How ranks divide the work."""

    ranks: int
    """Total number of ranks."""
    tensor: int = 1
    """Ranks that each layer is split over."""
    pipeline: int = 1
    """Pipeline stages that layers are distributed over."""
    context: int = 1
    """Ranks that each text is split over."""
    expert: int = 1
    """Ranks that the experts of a layer are distributed over."""
    expert_tensor: int = 0
    """Ranks that each expert is split over; 0 becomes `tensor`."""
    first: int = 0
    """Layers of the first pipeline stage; 0: as many as others."""
    last: int = 0
    """Layers of the last pipeline stage; 0: as many as others."""

    def __post_init__(self) -> None:
        """Fill in Megatron's default of `expert_tensor`."""
        object.__setattr__(self, "expert_tensor", self.expert_tensor or self.tensor)

    @property
    def replica_size(self) -> int:
        """Ranks of one replica of the model."""
        return self.tensor * self.pipeline * self.context

    @property
    def data(self) -> int:
        """Number of replicas, each of which trains on a share of a step."""
        return self.ranks // self.replica_size

    @property
    def shares(self) -> tuple[int, ...]:
        """The share of each rank."""
        inner = self.tensor * self.context
        return tuple(rank // inner % self.data for rank in range(self.ranks))

    def stage(self, rank: int) -> int:
        """The pipeline stage of a rank."""
        return rank // (self.tensor * self.context * self.data)

    def holder(self, stage: int, expert: int = 0) -> int:
        """The first rank that has a pipeline stage and the part of its experts with this number."""
        return stage * (self.ranks // self.pipeline) + expert * self.expert_tensor

    def part_of(self, weight: Weight, model: Model) -> int:
        """The number of the part of the experts that a weight is in; 0 outside of experts."""
        if weight.expert is None or model.experts is None:
            return 0
        return weight.expert // (model.experts.count // self.expert)

    def check_ranks(self) -> None:
        """Check that the ranks form whole replicas of the model and of its experts.

        Raises:
            ValueError: they do not.
        """
        size = self.replica_size
        if self.ranks % size:
            fits = sorted({max(1, self.ranks // size) * size, -(-self.ranks // size) * size})
            raise ValueError(
                f"num_gpus = {self.ranks} is not a multiple of tensor_model_parallel_size x "
                f"pipeline_model_parallel_size x context_parallel_size = {self.tensor} x {self.pipeline} x "
                f"{self.context} = {size}: give {' or '.join(map(str, fits))} ranks "
                "(actor_num_gpus_per_node), or another layout"
            )
        each = self.ranks // self.pipeline
        if each % (self.expert * self.expert_tensor):
            raise ValueError(
                f"expert_model_parallel_size x expert_tensor_parallel_size = {self.expert} x {self.expert_tensor} does "
                f"not divide the {each} ranks of a pipeline stage (num_gpus = {self.ranks}, "
                f"pipeline_model_parallel_size = {self.pipeline}): {self._experts_that_fit(each)}"
            )

    def check_node(self, ranks: int) -> None:
        """Check that no layer is split over two nodes, given the ranks per node.

        Raises:
            ConfigError: a layer would be.
        """
        ways = {"tensor_model_parallel_size": self.tensor, "expert_tensor_parallel_size": self.expert_tensor}
        for key, size in ways.items():
            if ranks % size:
                fits = sorted({max(size, ranks // size * size), -(-ranks // size) * size})
                raise ConfigError(
                    f"[trainer.megatron] {key} = {size}: each node has {ranks} ranks (actor_num_gpus_per_node), so two "
                    f"nodes would exchange parts of every layer; give "
                    f"a {key} of {_nearest(size, ranks)}, or actor_num_gpus_per_node = {' or '.join(map(str, fits))}"
                )

    def _experts_that_fit(self, each: int) -> str:
        if each % self.expert_tensor:
            return f"give an expert_tensor_parallel_size of {_nearest(self.expert_tensor, each)}"
        return f"give an expert_model_parallel_size of {_nearest(self.expert, each // self.expert_tensor)}"

    def check(self, model: Model) -> None:
        """Check that a model can be split in this layout.

        Raises:
            ConfigError: it cannot be split.
        """
        if experts := model.experts:
            _check_divides("num_experts", experts.count, "expert_model_parallel_size", self.expert)
            _check_divides("moe_intermediate_size", experts.inner, "expert_tensor_parallel_size", self.expert_tensor)
        parted = (
            ("num_attention_heads", model.heads),
            ("num_key_value_heads", model.groups),
            ("intermediate_size", model.inner if experts is None or model.mixed else 0),
            ("moe_intermediate_size x n_shared_experts", experts.shared if experts else 0),
        )
        for what, number in parted:
            fits = math.gcd(*(each for _, each in parted))
            _check_divides(what, number, "tensor_model_parallel_size", self.tensor, fits)
        layers_of_stages(model, self.pipeline, self.first, self.last)


def layers_of_stages(model: Model, stages: int, first: int, last: int) -> list[int]:
    """Number of layers of each pipeline stage.

    Args:
        model: the whole model.
        stages: number of pipeline stages.
        first: layers of the first stage; 0: as many as other stages.
        last: layers of the last stage; 0: as many as other stages.

    Raises:
        ConfigError: the layers cannot be divided this way.
    """
    if not first and not last:
        _check_divides("num_hidden_layers", model.layers, "pipeline_model_parallel_size", stages)
        return [model.layers // stages] * stages
    others, rest = stages - bool(first) - bool(last), model.layers - first - last
    if not others and rest:
        raise ConfigError(
            f"[trainer.megatron] num_layers_in_first_pipeline_stage = {first or None} and "
            f"num_layers_in_last_pipeline_stage = {last or None}: they must add up to the model's num_hidden_layers = "
            f"{model.layers}, because pipeline_model_parallel_size = {stages}"
        )
    if rest < others or (others and rest % others):
        raise ConfigError(
            f"[trainer.megatron] num_layers_in_first_pipeline_stage = {first or None} and "
            f"num_layers_in_last_pipeline_stage = {last or None}: of the model's num_hidden_layers = {model.layers} "
            f"that leaves {rest} for the other {others} of pipeline_model_parallel_size = {stages} stages; change them "
            f"to leave a multiple of {others}"
        )
    return [*([first] if first else []), *[rest // max(1, others)] * others, *([last] if last else [])]


def _check_divides(what: str, number: int, key: str, ways: int, fits: int = 0) -> None:
    if number % ways:
        raise ConfigError(
            f"[trainer.megatron] {key} = {ways}: the model has {what} = {number}, which cannot be split into {ways} "
            f"equal parts; give {_nearest(ways, fits or number)}"
        )


def _nearest(ways: int, number: int) -> str:
    fits = [each for each in range(1, number + 1) if number % each == 0]
    near = sorted(fits, key=lambda each: (abs(each - ways), each))[:2]
    return " or ".join(map(str, sorted(near)))
