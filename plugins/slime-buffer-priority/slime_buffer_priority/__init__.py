"""Prioritised replay for slime-core: groups drawn by score, each up to a number of times.

    [buffer]
    use = "priority"

slime-core finds the buffer `priority` in `slime_buffer_priority.plugin`; numpy is imported when one is built.
"""

from slime_buffer_priority.settings import Order, PrioritySettings, ScoreName

__all__ = ["Order", "PrioritySettings", "ScoreName"]
