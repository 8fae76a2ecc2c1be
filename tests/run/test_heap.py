import gc
import weakref

from slime_core.run.heap import settled_heap


class Thing:
    """What a weak reference can refer to."""

    def __init__(self) -> None:
        self.itself = self


def test_what_there_is_is_set_aside_and_given_back() -> None:
    before = gc.get_freeze_count()
    with settled_heap():
        assert gc.get_freeze_count() > before
    assert gc.get_freeze_count() == 0


def test_garbage_is_not_kept() -> None:
    garbage = weakref.ref(Thing())
    assert garbage() is not None
    with settled_heap():
        assert garbage() is None


def test_what_is_made_since_is_still_collected() -> None:
    with settled_heap():
        garbage = weakref.ref(Thing())
        gc.collect()
        assert garbage() is None
