"""The trainer `megatron` of slime-core: megatron-core, whatever the layout, on CPUs or GPUs."""
