"""Finetuning: the trainer on dialogs of a file, without engine and reward. Runs when `sft_loss` is the only loss.

Example:

    outcome = await finetune(plan, folder, display)              # continues from the folder's newest checkpoint
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from slime_core.config import Plan, read_positions
from slime_core.data import name_files
from slime_core.data.prompts import EpochOrder
from slime_core.data.rows import split_slice
from slime_core.errors import CheckpointError, DataError
from slime_core.roles import Draw, RowFormat
from slime_core.run import DataRead, DataSetReport, Outcome, RunFolder
from slime_core.run.build import Builder
from slime_core.run.checkpoint import Checkpoint, CheckpointState, describe_file
from slime_core.run.loop import BaseLoop, run_loop
from slime_core.run.prompts import eval_file
from slime_core.run.session import BaseSession
from slime_core.sample import Group, GroupId, Json, Sample, Status
from slime_core.seeds import derive_seed
from slime_core.telemetry import Display, MetricsLog, names
from slime_core.telemetry.recording import SampleWriter
from slime_train.dialogs import Dialog, DialogReader

SOURCE = "sft"


async def finetune(plan: Plan, folder: RunFolder, display: Display) -> Outcome:
    """Train the plan's model on its prompt data; see `run_loop`.

    Raises:
        DataError: a row cannot be used, or is longer than the model's longest text.
        ModelError: the model has no tokenizer, or no chat template although the run uses one.
    """
    dialogs = read_dialogs(Builder(plan))

    def session(plan: Plan, folder: RunFolder, display: Display) -> BaseSession:
        base = BaseSession(plan, folder, display, unit="step")
        base.set_length(lambda: dialogs.rows)
        return base

    return await run_loop(plan, folder, display, session, partial(Finetuning, dialogs))


class Finetuning(BaseLoop):
    """A finetuning in progress: every step is the next `rollout_batch_size` rows of the epoch's order."""

    def __init__(
        self, dialogs: "Dialogs", session: BaseSession, display: Display, metrics: MetricsLog, samples: SampleWriter
    ) -> None:
        super().__init__(session, display, metrics, samples)
        self._rows, self._held_out = dialogs.rows, dialogs.held_out
        self._data: dict[str, Json] = {
            path.name: describe_file(file).model_dump()
            for path, _ in name_files(self._config.data.prompt_data)
            if (file := split_slice(path)[0]).is_file()
        }
        self._order: tuple[int, EpochOrder] | None = None
        rollout, last = self._config.rollout, session.num_rollout
        uses = len(self._rows) * (rollout.num_epoch or 0)
        notes = list(dialogs.notes)
        if left := uses - last * rollout.rollout_batch_size if uses else 0:
            notes.append(
                f"{len(self._rows)} rows x {rollout.num_epoch} epochs are {last} step{'s' * (last != 1)} of "
                f"{rollout.rollout_batch_size} rows, and {left} left over that are not trained on: choose a "
                f"rollout_batch_size that divides {uses} to use them all"
            )
        for note in notes:
            display.message(note)

    async def _state_dict(self) -> Mapping[str, Json]:
        return {"data": self._data}

    def _restore(self, checkpoint: Checkpoint, state: CheckpointState) -> None:
        if (state.model_extra or {}).get("data") != self._data and not self._config.data.accept_changed_data:
            raise CheckpointError(
                "the training data has changed since the checkpoint was written: put the old data back, pass "
                "--accept-changed-data to continue with the new data from the same place, or give another --save"
            )

    async def _next(self) -> tuple[Draw, dict[str, float], None]:
        size = self._config.rollout.rollout_batch_size
        places = range(self.rollout_id * size, (self.rollout_id + 1) * size)
        groups = [_group(self._rows[self._row(place)], place, *divmod(place, len(self._rows))) for place in places]
        tokens = sum(sample.response_length for group in groups for sample in group.samples)
        return Draw(groups, [1.0] * len(groups)), {"sft/response_tokens": float(tokens)}, None

    def _row(self, place: int) -> int:
        """Which row the place of an endless sequence of epochs has."""
        epoch, within = divmod(place, len(self._rows))
        if not self._config.data.rollout_shuffle:
            return within
        if self._order is None or self._order[0] != epoch:
            seed = derive_seed(self._config.run.seed, SOURCE, epoch)
            self._order = (epoch, EpochOrder(len(self._rows), seed))
        return self._order[1][within]

    async def _evaluate_if_due(self) -> None:
        """The mean loss per token of every evaluation set, before the first step, at the interval, and at the end."""
        every, step = self._config.evaluation, self.rollout_id
        due = step % (every.eval_interval or 1) == 0 or step == self._base.num_rollout
        if not self._held_out or not due or (step == 0 and every.skip_eval_before_train):
            return
        metrics = {}
        for name, dialogs in self._held_out.items():
            self._display.phase(f"evaluation: {name}")
            groups = [_group(dialog, row, 0, row) for row, dialog in enumerate(dialogs)]
            prepared = self._base.preparation.prepare(Draw(groups, [1.0] * len(groups)), step)
            found = await self._base.trainer.measure(prepared, step)
            metrics[names.eval_reward(f"{name}-loss")] = found["loss"]
        await self._log(step, metrics)


class Dialogs(NamedTuple):
    """What a finetuning reads."""

    rows: Sequence[Dialog]
    """To train on."""
    held_out: Mapping[str, Sequence[Dialog]]
    """Of each evaluation set."""
    notes: Sequence[str]
    """A sentence about each kind of row that was left out."""


def read_dialogs(build: Builder) -> Dialogs:
    """Dialogs to train on and of each evaluation set. Raises the errors of `finetune`."""
    plan, tokenizer, form = build.plan, build.tokenizer(), build.row_format()
    positions, longest = read_positions(plan.config.run.hf_checkpoint), plan.config.rollout.rollout_max_context_len
    notes: list[str] = []

    def read(paths: Sequence[Path], form: RowFormat) -> list[Dialog]:
        reader = DialogReader(tokenizer, replace(form, max_prompt_len=longest), positions)
        dialogs = reader.read(paths)
        notes.extend(reader.notes)
        if not dialogs:
            raise DataError(f"{', '.join(map(str, paths))}: no rows to train on. {' '.join(reader.notes)}".rstrip())
        return dialogs

    rows = read([path for path, _ in name_files(plan.config.data.prompt_data)], form)
    sets = plan.config.evaluation.eval_prompt_data
    files = {name: eval_file(name, own, plan.config, form) for name, own in sets.items()}
    return Dialogs(rows, {name: read([file.path], file) for name, file in files.items()}, notes)


def read_all_dialogs(plan: Plan) -> DataRead:
    """What a finetuning would read, by data set; errors as of `finetune`."""
    build = Builder(plan)
    found, tokenizer = read_dialogs(build), build.tokenizer()
    files = ", ".join(path.name for path, _ in name_files(plan.config.data.prompt_data))
    sets = {files: found.rows, **{f"eval:{name}": dialogs for name, dialogs in found.held_out.items()}}
    reports = [
        DataSetReport(
            name,
            len(dialogs),
            first_prompt=tokenizer.decode(dialogs[0].prompt, skip_special_tokens=False),
            label=tokenizer.decode(dialogs[0].response, skip_special_tokens=False),
            lengths=[len(each.prompt) + len(each.response) for each in dialogs],
            unit="dialog",
        )
        for name, dialogs in sets.items()
    ]
    notes = [*build.tokenizer_notes(), *found.notes]
    return DataRead(notes, reports, read_positions(plan.config.run.hf_checkpoint))


def _group(dialog: Dialog, number: int, epoch: int, row: int) -> Group:
    """A dialog as a group of one sample."""
    sample = Sample(
        index=0,
        group_index=number,
        rollout_id=number,
        tokens=[*dialog.prompt, *dialog.response],
        response_length=len(dialog.response),
        loss_mask=list(dialog.loss_mask),
        rollout_log_probs=[0.0] * len(dialog.response),
        reward=0.0,
        weight_versions=["0"],
        status=Status.COMPLETED,
    )
    group = Group(GroupId(SOURCE, epoch, row, number), [sample])
    group.freeze()
    return group
