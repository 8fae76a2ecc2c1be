"""What the tests of remote agents share: one cloud on this machine, and credentials that it takes."""

from collections.abc import Iterator

import pytest
from cloud import CREDENTIALS, Cloud


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with pytest.MonkeyPatch.context() as patch, Cloud.started() as started:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield started
