"""slime-compat: runs functions written for slime's `--custom-*-path` flags, with slime's signatures.

The adapters report mistakes that slime accepts silently, such as a reward of None or NaN.

    [reward]
    use = "rm"
    [reward.rm]
    path = "my_package.rewards.custom_rm"
"""
