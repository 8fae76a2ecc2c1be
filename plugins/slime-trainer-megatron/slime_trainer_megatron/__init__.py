"""The trainer `megatron` of slime-core: megatron-core in any parallel layout, on CPUs or GPUs."""
