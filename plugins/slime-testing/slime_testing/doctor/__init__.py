"""What slime-testing looks at when `slime doctor` runs; plugins add checks of their own through `slime_checks`.

Example:

    for spec in core_checks():
        print(spec.name, spec.factory(spec.model(), setup)().text)
"""

from slime_testing.doctor.core import core_checks
from slime_testing.doctor.examine import OWN, PATIENCE_S, Examined, examine

__all__ = ["OWN", "PATIENCE_S", "Examined", "core_checks", "examine"]
