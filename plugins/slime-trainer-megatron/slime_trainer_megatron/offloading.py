"""Offloading: requirements of Megatron's optimizer in CPU memory. Imports no torch.

Example:

    check_offload(settings, bf16=True)      # ConfigError: possible with use_distributed_optimizer = true alone ...
"""

from slime_core.errors import ConfigError
from slime_core.roles import Settings
from slime_trainer_megatron.arguments import of_critic


def check_offload(settings: Settings, *, bf16: bool) -> None:
    """Check that Megatron can keep the moments of policy and critic in CPU memory.

    Raises:
        ConfigError: it cannot.
    """
    for prefix, given in (("", settings.__dict__), ("critic.", of_critic(settings).__dict__)):
        if given["optimizer_cpu_offload"] and bf16 != given["use_distributed_optimizer"]:
            said = str(bf16).lower()
            raise ConfigError(
                f"[trainer.megatron] {prefix}optimizer_cpu_offload with bf16 = {said} needs "
                f"use_distributed_optimizer = {said}: in Megatron only the distributed optimizer keeps the fp32 copies "
                "that offloading needs in bf16, and it takes nothing but such copies. Set it so, or leave "
                "optimizer_cpu_offload out"
            )
