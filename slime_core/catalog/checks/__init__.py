"""What plugins return, checked where the core takes it over, so that the error names the culprit.

    samples = check_generated(await generator(sample, ctx), plugin="slime-agent-openai", sample=sample)

A check returns what it was given, typed; of numbers it makes what they stand for.
"""

from slime_core.catalog.checks._refuse import blaming
from slime_core.catalog.checks.decisions import (
    check_decision,
    check_draw,
    check_evicted,
    check_removals,
    check_selection,
)
from slime_core.catalog.checks.samples import (
    as_verdict,
    check_chunk,
    check_drawn,
    check_generated,
    check_output,
    check_verdict,
    check_verdicts,
    checked_label,
)
from slime_core.catalog.checks.training import check_columns, check_shaped, check_slots, check_step_result

__all__ = [
    "as_verdict",
    "blaming",
    "check_chunk",
    "check_columns",
    "check_decision",
    "check_draw",
    "check_drawn",
    "check_evicted",
    "check_generated",
    "check_output",
    "check_removals",
    "check_selection",
    "check_shaped",
    "check_slots",
    "check_step_result",
    "check_verdict",
    "check_verdicts",
    "checked_label",
]
