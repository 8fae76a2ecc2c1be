"""Publishing: the trainer's weights become the engine's, by the run's transport, one version at a time.

Example:

    publishing = await Publishing.start(trainer, engine, used_transport, rendezvous=False)
    await publishing.publish(4)
    await publishing.close()
"""

from slime_core.catalog.checks import blaming
from slime_core.catalog.used import Used
from slime_core.errors import ContractError, SlimeError
from slime_core.roles import Transport, WeightChannel
from slime_core.rollout import EnginePool
from slime_core.run.trainer import Trainer
from slime_core.tasks import together


class Publishing:
    """An opened channel and its two sides."""

    def __init__(
        self, trainer: Trainer, engine: EnginePool, transport: Used[Transport], channel: WeightChannel, rendezvous: bool
    ) -> None:
        """Take over an opened channel; use `start`."""
        self._trainer, self._engine, self._transport, self._channel = trainer, engine, transport, channel
        self._rendezvous = rendezvous
        self._newest: int | None = None

    @classmethod
    async def start(
        cls, trainer: Trainer, engine: EnginePool, transport: Used[Transport], *, rendezvous: bool
    ) -> "Publishing":
        """Open the channel for what the ranks publish, and their ends of it.

        Raises:
            ContractError: what the ranks publish, or the channel, is no such thing.
            RunFolderError: there is no room for the weights.
        """
        slots = await trainer.weight_slots()
        with blaming(f"transport {transport.name!r} (open)", transport.plugin):
            channel: object = await transport.part.open(slots)
        if not isinstance(channel, WeightChannel) or tuple(channel.slots) != tuple(slots):
            raise ContractError(
                f"transport {transport.name!r} of plugin {transport.plugin}: open() returned {channel!r:.80}; expected "
                "a WeightChannel with the slots that it was given"
            )
        await trainer.connect(channel)
        engine.catch_up_by(trainer.publish_again)
        return cls(trainer, engine, transport, channel, rendezvous)

    async def publish(self, version: int) -> None:
        """Make the trainer's current weights the engine's, as a version.

        Raises:
            SlimeError: they could not be sent or loaded; says which version is served on.
        """
        try:
            if self._rendezvous:
                sending = self._trainer.publish(version, self._engine.serving)
                await together(sending, self._engine.load_weights(self._channel, version))
            else:
                await self._trainer.publish(version, ())
                await self._engine.load_weights(self._channel, version)
        except SlimeError as error:
            served = "no version is served" if self._newest is None else f"version {self._newest} is served on"
            why = f"version {version} of the weights could not be published, {served}: {error}"
            kind = next(each for each in type(error).__mro__ if each.__module__ == SlimeError.__module__)
            raise kind(why) from error
        self._newest = version

    async def close(self) -> None:
        """Close the driver's end."""
        with blaming(f"transport {self._transport.name!r} (close)", self._transport.plugin):
            await self._transport.part.close()
