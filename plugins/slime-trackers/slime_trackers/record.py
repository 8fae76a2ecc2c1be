"""Record: which run of the library a run folder belongs to, and what was sent to it, so that a resume goes on with it.

Example:

    record = Record(run_dir / "wandb" / "slime.json")
    record.begin("3f9a1c2e", last=None)
    record.unsent(3, {"train/loss": 0.5})       # the same, or less of it if step 3 was sent before
    record.sent(3, {"train/loss": 0.5})

After a resume the steps since the checkpoint come again. The libraries would drop them or draw them twice, so what they
have is not sent again: a curve has one value a step, the first.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import cast


class Record:
    """The file is written anew after each row: a process that is killed leaves the one before it."""

    def __init__(self, path: Path) -> None:
        """Read what is there."""
        self._path = path
        kept = json.loads(path.read_text("utf-8")) if path.exists() else {}
        self.run: str | None = cast(str | None, kept.get("run"))
        """The run, as the library names it; None before it was made."""
        self._step = int(kept.get("step", -1))
        self._names: set[str] | None = set(cast(list[str], kept.get("names", [])))

    def begin(self, run: str, last: int | None) -> None:
        """Go on with a run.

        Args:
            run: nothing was sent yet if it is another than before.
            last: the last step that the library has, -1 before the first, where it can tell: what it held in memory is
                lost if its process was killed. None: it has all that was sent.
        """
        if run != self.run:
            self.run, self._step, self._names = run, -1, set()
        if last is not None and last != self._step:
            self._step, self._names = last, None
        self._write()

    def unsent(self, step: int, metrics: Mapping[str, float]) -> dict[str, float]:
        """What of a row was not sent; an evaluation and a training row may share a step."""
        if step < self._step:
            return {}
        if step > self._step:
            return dict(metrics)
        return {name: value for name, value in metrics.items() if self._names is not None and name not in self._names}

    def sent(self, step: int, metrics: Mapping[str, float]) -> None:
        """Keep that this was sent."""
        self._names = {*(self._names or ()), *metrics} if step == self._step else set(metrics)
        self._step = step
        self._write()

    def _write(self) -> None:
        names = sorted(self._names) if self._names is not None else []
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"run": self.run, "step": self._step, "names": names}), "utf-8")
        new.replace(self._path)
