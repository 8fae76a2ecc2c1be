"""slime-compat: functions written for slime's `--custom-*-path` flags, called as slime calls them.

The adapters report where slime is harmfully lenient: a filter that does not remove, a reward of None or NaN.

    [reward]
    use = "rm"
    [reward.rm]
    path = "my_package.rewards.custom_rm"
"""
