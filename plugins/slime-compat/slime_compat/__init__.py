"""slime-compat: functions written for slime's `--custom-*-path` flags, called as slime calls them.

Where slime is lenient in a harmful way (a filter that does not remove, a reward of None or NaN), the adapter says so.

    [reward]
    use = "rm"
    [reward.rm]
    path = "my_package.rewards.custom_rm"
"""
