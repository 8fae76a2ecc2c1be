"""`python -m slime_reward_math`: the same as `slime-grade`."""

from slime_reward_math.cli import main

main()
