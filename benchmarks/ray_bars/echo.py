"""What calls are made to: it adds, and gives back what it was given."""


class Echo:
    """A worker of a group."""

    def __init__(self, rank: int, size: int) -> None:
        """Nothing to build."""

    def add(self, number: int) -> int:
        """One more."""
        return number + 1

    def echo(self, data: bytes) -> bytes:
        """The same."""
        return data
