"""A target that raises one of our errors."""

from slime_core.errors import UnknownName


class Raises:
    def __init__(self, rank: int, size: int) -> None:
        raise UnknownName("nobody knows it")
