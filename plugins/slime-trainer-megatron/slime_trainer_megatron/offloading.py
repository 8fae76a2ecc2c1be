"""Offloading: requirements for keeping Megatron's moments in CPU memory. Imports no torch.

Example:

    check_offload(settings, bf16=True)      # ConfigError: ... needs use_distributed_optimizer = true ...
"""

from slime_core.errors import ConfigError
from slime_core.roles import Settings
from slime_trainer_megatron.arguments import critic_settings


def check_offload(settings: Settings, *, bf16: bool) -> None:
    """Check that Megatron can keep the moments of policy and critic in CPU memory.

    Raises:
        ConfigError: Megatron cannot offload with these settings.
    """
    for prefix, given in (("", settings.__dict__), ("critic.", critic_settings(settings).__dict__)):
        if given["optimizer_cpu_offload"] and bf16 != given["use_distributed_optimizer"]:
            value = str(bf16).lower()
            raise ConfigError(
                f"[trainer.megatron] {prefix}optimizer_cpu_offload with bf16 = {value} needs "
                f"use_distributed_optimizer = {value}: offloading in bf16 needs fp32 copies of the weights, which only "
                "Megatron's distributed optimizer keeps, and that optimizer can offload only such copies. Set it, or "
                "leave optimizer_cpu_offload out"
            )
