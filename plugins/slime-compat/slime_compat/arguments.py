"""Arguments: what slime's functions get as `args`: the keys of the run file, and an error that says which is missing.

Example:

    Arguments({"reward_key": "score"}, section="reward.rm").reward_key
"""

from collections.abc import Mapping
from types import SimpleNamespace


class Arguments(SimpleNamespace):
    """A namespace in slime's manner; functions may set attributes on it, as they do there."""

    def __init__(self, values: Mapping[str, object], section: str) -> None:
        """Take the values of `[section.args]`."""
        super().__init__(**values)
        self._section = section

    def __getattr__(self, name: str) -> object:
        """Called for what is not there.

        Raises:
            AttributeError: naming the line to write; `getattr(args, name, default)` works as ever.
        """
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(
            f"the function reads args.{name}: here args holds what stands under [{self._section}.args] "
            f"and nothing else of the run. Write {name} = ... there"
        )
