"""Prioritised replay for slime-core: groups drawn by score or by rank, each up to a number of times.

    [buffer]
    use = "priority"

slime-core finds the buffer `priority` in `slime_buffer_priority.plugin`; numpy is imported when one is built.
"""

from slime_buffer_priority.settings import Keep, Order, PrioritySettings, ScoreName

__all__ = ["Keep", "Order", "PrioritySettings", "ScoreName"]
