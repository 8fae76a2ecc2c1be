"""A rank that keeps a piece of the weights; torch lives here, and nothing of slime-core but its public names."""

import math
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from slime_core.catalog import discover_in_worker
from slime_core.errors import ContractError, NonFiniteError
from slime_core.roles import RankSetup, StepResult, TrainBatch, WeightSlot
from slime_train import Algorithm, Share, Sums, fail_on_all_ranks, learning_rate
from slime_trainer_halves import TOP_P, HalvesSettings

MOMENTS = ("exp_avg", "exp_avg_sq")


class PieceRank:
    """Implements `TrainerRank` and `PreparesRollout`."""

    def __init__(self, rank: int, world_size: int, setup: RankSetup) -> None:
        torch.set_num_threads(1)
        self._rank, self._world, self._setup = rank, world_size, setup
        pieces = min(world_size, cast(HalvesSettings, setup.settings).pieces)
        if world_size > 1:
            dist.init_process_group("gloo", init_method=setup.rendezvous, rank=rank, world_size=world_size)
            copies = [list(range(first, first + pieces)) for first in range(0, world_size, pieces)]
            self._copy, _ = dist.new_subgroups_by_enumeration(copies)
            self._peers, _ = dist.new_subgroups_by_enumeration([list(each) for each in zip(*copies, strict=True)])
        self._pieces, self._place = pieces, rank % pieces
        self._model = AutoModelForCausalLM.from_pretrained(setup.hf_checkpoint, dtype=torch.float32)
        self._named = dict(self._model.named_parameters())
        flat = torch.cat([each.detach().flatten() for each in self._named.values()])
        self._numel, self._size = len(flat), -(-len(flat) // pieces)
        self._piece = self._mine(flat).clone().requires_grad_()
        self._optim = torch.optim.AdamW([self._piece], setup.optim.lr, (0.9, 0.95), weight_decay=0.0)
        self._steps = 0
        self._algorithm = Algorithm.in_rank(discover_in_worker(setup.plugins, f"rank {rank}"), setup, self._over_shares)
        self._shares: dict[int, Share] = {}

    def _mine(self, flat: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(flat, (0, self._size * self._pieces - len(flat)))
        return padded[self._place * self._size : (self._place + 1) * self._size]

    def _over_shares(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._added(tensor, self._peers if self._world > 1 else None)

    def _over_all(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._added(tensor, dist.group.WORLD if self._world > 1 else None)

    def _added(self, tensor: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
        total = tensor.clone()
        if group is not None:
            dist.all_reduce(total, group=group)
        return total

    def _gather(self) -> None:
        """The model's parameters from all pieces of the copy."""
        parts = [torch.empty(self._size) for _ in range(self._pieces)]
        if self._pieces > 1:
            dist.all_gather(parts, self._piece.detach(), group=self._copy)
        else:
            parts = [self._piece.detach()]
        places = torch.cat(parts)[: self._numel].split([each.numel() for each in self._named.values()])
        for parameter, values in zip(self._named.values(), places, strict=True):
            parameter.data.copy_(values.view_as(parameter))

    def weight_slots(self) -> Sequence[WeightSlot]:
        return [WeightSlot(name, tuple(each.shape)) for name, each in self._named.items()]

    def weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        self._gather()
        for name, parameter in self._named.items():
            yield name, parameter.detach()

    def begin_rollout(self, batches: Sequence[TrainBatch]) -> None:
        self._gather()
        with fail_on_all_ranks(self._rank, self._world, self._over_all):
            for share in self._algorithm.estimate([self._algorithm.share(batch) for batch in batches]):
                old_T = None
                if self._algorithm.wants_old_log_probs(share):
                    old_T = torch.zeros_like(share.mask_T)
                    for sample in share.samples_with(self._algorithm.signal(share)):
                        with torch.no_grad():
                            old_T[share.tokens_of([sample])] = self._forward(share, sample)[0]
                self._shares[share.batch.step] = replace(share, old_log_probs_T=old_T)

    def train_step(self, batch: TrainBatch) -> StepResult:
        share, sums = self._shares.pop(batch.step), Sums()
        self._gather()
        self._model.zero_grad()
        with fail_on_all_ranks(self._rank, self._world, self._over_all):
            for sample in share.samples_with(self._algorithm.signal(share)):
                part = self._algorithm.micro_batch(share, [sample], *self._forward(share, sample))
                part.loss.backward()
                sums.add(part)
        none = (torch.zeros_like(each) if each.grad is None else each.grad for each in self._named.values())
        gradient = self._over_shares(self._mine(torch.cat([each.flatten() for each in none])))
        squares = gradient.double().square().sum()
        if self._pieces > 1:
            dist.all_reduce(squares, group=self._copy)
        norm = math.sqrt(float(squares))
        if not math.isfinite(norm):
            raise NonFiniteError(f"step {self._steps}: the gradient norm is {norm}")
        self._piece.grad = gradient * min(1.0, self._setup.optim.clip_grad / (norm + 1e-6))
        lr = learning_rate(self._setup.optim, self._steps)
        self._optim.param_groups[0]["lr"] = lr
        self._optim.step()
        self._steps += 1
        result = sums.result(share, {"grad_norm": norm, "lr-pg_0": lr})
        return replace(result, metrics={**result.metrics, **self._kept(share)})

    @staticmethod
    def _kept(share: Share) -> dict[str, float]:
        """Of how many tokens each one was drawn, as a sum over trained tokens."""
        ids_S, offsets_S = (share.batch.fields_S.get(field, ()) for field in TOP_P)
        total = 0.0
        for sample, (ids, offsets) in enumerate(zip(ids_S, offsets_S, strict=True)):
            places = range(share.starts_S[sample], share.starts_S[sample + 1])
            if ids is None or offsets is None:
                return {}
            for place, (begin, end) in zip(places, pairwise(offsets), strict=True):
                if share.batch.tokens_T[place] not in ids[begin:end]:
                    raise ContractError(f"token {place} is not among those that top-p kept")
                total += share.batch.loss_mask_T[place] * (end - begin)
        return {"top_p_kept": total} if len(ids_S) else {}

    def _forward(self, share: Share, sample: int) -> tuple[torch.Tensor, torch.Tensor]:
        batch = share.batch
        response = batch.tokens_T[share.starts_S[sample] : share.starts_S[sample + 1]]
        ids = torch.tensor([*batch.prompts_P[batch.prompt_index_S[sample]], *response])
        logits = self._model(ids[None]).logits[0, -len(response) - 1 : -1] / self._setup.rollout_temperature
        log_probs = logits.log_softmax(-1)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        return log_probs.gather(1, ids[-len(response) :, None])[:, 0], entropy

    def save(self, directory: Path, *, hf: bool = True) -> None:
        self._gather()
        if self._rank == 0 and hf:
            self._model.save_pretrained(directory / "hf")
            for path in self._setup.hf_checkpoint.glob("tokenizer*"):
                shutil.copyfile(path, directory / "hf" / path.name)
        if self._rank < self._pieces:
            (directory / "optim").mkdir(parents=True, exist_ok=True)
            state = self._optim.state.get(self._piece, {})
            zeros = torch.zeros(self._size)
            tensors = {"piece": self._piece.detach()} | {name: state.get(name, zeros).clone() for name in MOMENTS}
            save_file({**tensors, "steps": torch.tensor(self._steps)}, directory / f"optim/{self._rank}.safetensors")
        if self._world > 1:
            dist.barrier()

    def load(self, directory: Path) -> None:
        files = sorted((directory / "optim").glob("*.safetensors"), key=lambda path: int(path.stem))
        parts = [load_file(path) for path in files]
        self._steps = int(parts[0]["steps"])
        whole = {name: torch.cat([each[name] for each in parts])[: self._numel] for name in ("piece", *MOMENTS)}
        self._piece.data.copy_(self._mine(whole["piece"]))
        moments = {name: self._mine(whole[name]).clone() for name in MOMENTS}
        self._optim.state[self._piece] = {"step": torch.tensor(float(self._steps)), **moments}
