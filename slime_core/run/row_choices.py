"""RowChoices: builds the generators and rewards that rows and evaluation sets name, each once, before anything starts.

Example:

    choices = RowChoices(builder)
    choices.check(source)                       # every name that its rows use
    choices.reward("math")
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from slime_core.errors import ConfigError, DataError, UnknownName
from slime_core.roles import DataSource, GeneratorSpec, NamesChoices, Reward, RewardSpec
from slime_core.rollout import Lifecycle, UsedGenerator, UsedReward

if TYPE_CHECKING:
    from slime_core.run.setup import Builder


class RowChoices:
    """Builds what rows name, each once; what the run itself chose is not built a second time."""

    def __init__(self, build: "Builder") -> None:
        """Nothing is built yet."""
        self._build = build
        self._generators: dict[str, UsedGenerator] = {}
        self._rewards: dict[str, UsedReward[Reward]] = {}

    def generator(self, name: str) -> UsedGenerator:
        """The generator of that name.

        Raises:
            UnknownName: there is none.
        """
        if name not in self._generators:
            chosen = self._build.plan.choose(GeneratorSpec, name)
            qualified = chosen.registered.qualified
            self._generators[name] = self._generators.get(qualified) or self._build.generator(chosen)
            self._generators[qualified] = self._generators[name]
        return self._generators[name]

    def reward(self, name: str) -> UsedReward[Reward]:
        """The reward of that name, with weight 1.

        Raises:
            UnknownName: there is none.
        """
        if name not in self._rewards:
            chosen = self._build.plan.choose(RewardSpec, name)
            qualified = chosen.registered.qualified
            self._rewards[name] = self._rewards.get(qualified) or self._build.reward(chosen)
            self._rewards[qualified] = self._rewards[name]
        return self._rewards[name]

    @property
    def lifecycles(self) -> list[Lifecycle]:
        """Of the generators that were built, each once."""
        found = (use.lifecycle for use in self._generators.values())
        return list(dict.fromkeys(each for each in found if each is not None))

    def check(self, source: DataSource) -> None:
        """Build what the rows of a data source name, if it can say so before it draws."""
        if isinstance(source, NamesChoices):
            self.check_rows(source.named_choices())

    def check_rows(self, named: Mapping[tuple[str, str], str]) -> None:
        """Build what rows name.

        Raises:
            DataError: there is no such choice; names the first row that wants it.
        """
        for (role, name), where in named.items():
            try:
                if role == "generator":
                    self.generator(name)
                else:
                    self.reward(name)
            except (UnknownName, ConfigError) as error:
                raise DataError(f"{where}: {error}") from None
