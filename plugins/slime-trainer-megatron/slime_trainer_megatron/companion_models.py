"""A rank's models in addition to its policy: a reference, a teacher and a critic, in the policy's layout.

A reference or teacher with the policy's architecture is stored only as weights in CPU memory, which are swapped into
the policy's module once per rollout.

Example:

    (share,) = companions.add_log_probs([share])
    share.ref_log_probs_T                  # [T]
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch

from slime_core.roles import RankSetup
from slime_train import ServedWeights, Share
from slime_trainer_megatron.arguments import check_model
from slime_trainer_megatron.config_json import read_directory
from slime_trainer_megatron.critic import MegatronCritic
from slime_trainer_megatron.families import Model
from slime_trainer_megatron.model import Policy, build_policy, copy_weights, load_hf, weights_of
from slime_trainer_megatron.passes import Head, Passes

REFRESHED = "refreshed"
BeforePass = Callable[[str, Policy], None]


class FrozenModel:
    """A model that is not trained."""

    def __init__(self, directory: Path, setup: RankSetup, *, replays: bool = False) -> None:
        """Load this rank's part; `replays`: use the experts that the sampler chose.

        Raises:
            ConfigError: it does not fit the layout, or its family is not supported.
            ModelError: it cannot be loaded.
        """
        model = read_directory(directory, bf16=setup.bf16)
        check_model(setup.settings, model)
        self.policy = build_policy(model, setup.settings, Policy)
        """This rank's part."""
        self.policy.requires_grad_(False)
        load_hf(self.policy, directory, model)
        self.passes = passes_of(self.policy, model, setup, replays=replays)
        """Its passes, valid while it is `in_place`."""

    @contextmanager
    def in_place(self) -> Iterator[Policy]:
        """Context manager: yields the model, which always has its own weights."""
        yield self.policy

    def copy_from(self, policy: Policy) -> None:
        """Replace the weights by the policy's."""
        copy_weights(self.policy, weights_of(policy))

    def value_of(self, parameter: torch.Tensor) -> torch.Tensor:
        """The weight of a parameter, which is the parameter's data."""
        return parameter.data


class SwappedModel:
    """Weights in CPU memory, in the policy's layout, that are swapped into the policy's module for a forward pass.

    The device never holds both models: weights are swapped one at a time, and back.
    """

    def __init__(self, directory: Path, setup: RankSetup, policy: Policy, model: Model) -> None:
        """Load this rank's part of a model with the policy's architecture.

        Raises:
            ModelError: it cannot be loaded.
        """
        self.policy = policy
        """The policy, whose module both models share."""
        self._pairs = {id(each): (each, _empty_on_cpu(each)) for each in weights_of(policy).values()}
        load_hf(policy, directory, model, self.value_of)
        self.passes = passes_of(policy, model, setup)
        """Passes of these weights, valid while they are `in_place`."""

    @contextmanager
    def in_place(self) -> Iterator[Policy]:
        """Context manager: puts these weights into the module; restores the policy's bitwise at the end."""
        self._exchange()
        try:
            yield self.policy
        finally:
            self._exchange()

    @torch.no_grad()
    def copy_from(self, policy: Policy) -> None:
        """Copy the policy's current weights."""
        for parameter, stored in self._pairs.values():
            stored.copy_(parameter)

    def value_of(self, parameter: torch.Tensor) -> torch.Tensor:
        """The stored weight for a parameter of the policy."""
        return self._pairs[id(parameter)][1]

    @torch.no_grad()
    def _exchange(self) -> None:
        for parameter, stored in self._pairs.values():
            before = parameter.clone()
            parameter.copy_(stored)
            stored.copy_(before)


def passes_of(policy: Policy, model: Model, setup: RankSetup, *, replays: bool = False) -> Passes:
    """Forward passes of a model that is not trained."""
    given = setup.settings.__dict__
    head = Head(model.vocab, setup.rollout_temperature, given["log_probs_chunk_size"])
    return Passes(policy, policy, model, head, given["max_tokens_per_gpu"], replays=replays)


def _empty_on_cpu(weight: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(weight, device="cpu", pin_memory=weight.device.type == "cuda", requires_grad=False)


class CompanionModels:
    """The reference, the teacher and the critic of one rank."""

    def __init__(self, setup: RankSetup, policy: Policy, model: Model) -> None:
        """Load the models that the setup configures; raises the errors of `FrozenModel`.

        Args:
            setup: the rank's setup.
            policy: this rank's part of the policy.
            model: the policy's whole model.
        """

        def frozen(directory: Path | None) -> FrozenModel | SwappedModel | None:
            if directory is None:
                return None
            if read_directory(directory, bf16=setup.bf16) == model:
                return SwappedModel(directory, setup, policy, model)
            return FrozenModel(directory, setup)

        self.reference = frozen(setup.reference.load if setup.reference else None)
        self.teacher = frozen(setup.teacher.load if setup.teacher else None)
        self.critic = MegatronCritic(setup) if setup.critic else None
        """The critic, if there is one."""
        self._interval = setup.reference.update_interval if setup.reference else None
        self._refreshed: int | None = 0

    def begin(self, rollout_id: int, policy: Policy) -> None:
        """Begin training on a rollout: if due, copy the policy's current weights into the reference."""
        if self.critic:
            self.critic.optimizer.begin_rollout()
        if self.reference is None or self._interval is None:
            return
        due = rollout_id // self._interval
        if self._refreshed is not None and due > self._refreshed:
            self.reference.copy_from(policy)
        self._refreshed = due

    def add_log_probs(
        self, shares: Sequence[Share], before_pass: BeforePass = lambda weights, policy: None
    ) -> list[Share]:
        """The shares with log-probs and values from these models for their trained samples.

        Args:
            shares: shares of a rollout's steps.
            before_pass: called before each model's forward passes, with slime's name of its weights and the model.
        """
        found_by_model = dict[str, list[torch.Tensor]]()
        for weights, model in (("ref", self.reference), ("teacher", self.teacher)):
            if model is not None:
                with model.in_place() as policy:
                    before_pass(weights, policy)
                    found_by_model[weights] = [model.passes.log_probs(share, share.mask_T) for share in shares]
        if self.critic:
            before_pass("critic", self.critic.policy)
            found_by_model["critic"] = [self.critic.values(share) for share in shares]
        nothing = [None] * len(shares)
        columns = (found_by_model.get(weights, nothing) for weights in ("ref", "teacher", "critic"))
        return [
            replace(share, ref_log_probs_T=reference, teacher_log_probs_T=teacher, values_T=values)
            for share, reference, teacher, values in zip(shares, *columns, strict=True)
        ]

    def refreshed(self) -> FrozenModel | SwappedModel | None:
        """A refreshed reference, which a checkpoint must save; None without one."""
        return self.reference if self._interval is not None else None

    def saved_numbers(self) -> dict[str, int]:
        """Numbers that a checkpoint saves for a resume."""
        return {} if self.refreshed() is None else {REFRESHED: self._refreshed or 0}

    def restored(self, numbers: Mapping[str, object]) -> FrozenModel | SwappedModel | None:
        """The model to fill with the saved reference, the inverse of `refreshed`; None if none was saved.

        If the checkpoint's run did not refresh the reference, it stays as loaded.
        """
        if self.refreshed() is None:
            return None
        found = numbers.get(REFRESHED)
        self._refreshed = found if isinstance(found, int) else None
        return self.refreshed() if isinstance(found, int) else None


VERSION = "old_actor"
"""A checkpoint's key for the old policy's version."""


class OldPolicy:
    """A model in the policy's layout, and copies of published weights."""

    def __init__(self, setup: RankSetup, lag: int) -> None:
        """Load a model to hold the copies."""
        self._frozen = FrozenModel(
            setup.hf_checkpoint, setup, replays=setup.settings.__dict__["use_rollout_routing_replay"]
        )
        self._served = ServedWeights[Mapping[str, torch.Tensor]](lag)

    def published(self, version: int, policy: Policy) -> None:
        """Record the policy's weights, published as a version."""
        self._served.published(version, lambda: {name: each.clone() for name, each in weights_of(policy).items()})

    def passes(self, rollout_id: int) -> Passes | None:
        """Passes of the model that generated a rollout; None if it is the policy at the start of training on it."""
        version, weights = self._served.of(rollout_id)
        if version == rollout_id:
            return None
        copy_weights(self._frozen.policy, weights)
        return self._frozen.passes

    def saved(self) -> tuple[int, Policy] | None:
        """Version and model of the weights that a resumed run needs but does not publish; None without them."""
        if (saved := self._served.saved()) is None:
            return None
        version, weights = saved
        copy_weights(self._frozen.policy, weights)
        return version, self._frozen.policy

    @property
    def restored(self) -> Policy:
        """The model to fill with the saved weights; call `restore` afterwards."""
        return self._frozen.policy

    def restore(self, version: int) -> None:
        """Register the weights in the model as a saved version."""
        weights = weights_of(self._frozen.policy)
        self._served.restore(version, {name: each.clone() for name, each in weights.items()})
