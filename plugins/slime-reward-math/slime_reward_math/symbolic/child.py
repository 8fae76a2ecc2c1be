"""The child process: reads pairs of trees, a line each, and answers whether they are equal, until its input ends.

Started by `Workers`. Its memory is capped before sympy is imported; it is ended from outside when its time is up.
"""

import json
import os
import resource
import sys
from typing import cast

from slime_reward_math.symbolic.wire import Packed, unpacked


def main(memory_mb: int) -> None:
    """Answer `true`, `false` or `null` for each pair on the standard input."""
    size = memory_mb * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w")
    # What sympy prints is not an answer.
    os.dup2(2, 1)
    from slime_reward_math.symbolic.algebra import equal

    print("ready", file=answers, flush=True)
    for line in sys.stdin:
        left, right = (unpacked(each) for each in cast(list[Packed], json.loads(line)))
        try:
            found = equal(left, right)
        except MemoryError:
            # What is left of the heap is not to be trusted with another pair.
            os._exit(1)
        except Exception:
            found = None
        print(json.dumps(found), file=answers, flush=True)
