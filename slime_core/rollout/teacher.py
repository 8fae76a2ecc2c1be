"""ServedTeacher: a model of the run tells its log-probs of finished samples, which the policy is distilled from.

Example:

    teacher = ServedTeacher("teacher", setup.models["teacher"], SamplingParams(0, temperature=1.0))
    await teacher.teach(samples)
    samples[0].teacher_log_probs            # of its response
"""

import asyncio
from collections.abc import Sequence

from slime_core.config import TEACHES
from slime_core.errors import ModelError
from slime_core.roles import GenerateRequest, SamplingParams, ServedModel
from slime_core.sample import Sample, Status


class ServedTeacher:
    """Asks about one sample at a time; a pool deals the questions to its engines."""

    def __init__(self, name: str, model: ServedModel, sampling: SamplingParams) -> None:
        """Of `served_models.NAME`; nothing is made, and log-probs are at the temperature of `sampling`."""
        self._name, self._model, self._sampling = name, model, sampling

    async def teach(self, samples: Sequence[Sample]) -> None:
        """Fill `teacher_log_probs` of those that can be trained on; what a generator brought is left as it is.

        Raises:
            ExceptionGroup: of what the model raised of some, a `WorkerError` where none of its engines serves, and of
                `ModelError` where it has no room for a sample.
        """
        async with asyncio.TaskGroup() as tasks:
            for sample in samples:
                if sample.status in (Status.FAILED, Status.ABORTED) or sample.remove_sample:
                    continue
                if sample.response_length and sample.teacher_log_probs is None:
                    tasks.create_task(self._teach(sample))

    async def _teach(self, sample: Sample) -> None:
        said = (await self._model.generate(GenerateRequest(sample.tokens, self._sampling, 0, want=TEACHES))).extras
        if said is None or said.prompt_log_probs is None:
            raise ModelError(
                f"the teacher {self._name!r} told no log-probs of a sample of {len(sample.tokens)} tokens: its context "
                "has no room for so many; shorten them (rollout_max_context_len), or serve it with a longer context"
            )
        sample.teacher_log_probs = list(said.prompt_log_probs[-sample.response_length :])
