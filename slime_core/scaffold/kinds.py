"""Kind: what can be scaffolded: every role, run hooks and rank hooks, each with what its example does."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One thing that a plugin can be."""

    key: str
    """The role's name, or "run_hooks" or "rank_hooks"; also the folder of its templates."""
    summary: str
    """What the example does, in one line without a full stop."""

    @property
    def word(self) -> str:
        """How it is written on the command line and in distribution names."""
        return self.key.replace("_", "-")


KINDS: Mapping[str, Kind] = {
    kind.word: kind
    for kind in (
        Kind("data_source", "Sums to work out, made on the fly"),
        Kind("generator", "Responses that must think again before they end"),
        Kind("reward", "Share of the label's words that the response holds"),
        Kind("buffer", "Hand out the newest groups, and forget the oldest when full"),
        Kind("buffer_filter", "The newest groups first, and stale ones never"),
        Kind("engine", "A bigram policy, sampled in the driver itself"),
        Kind("rank_hooks", "The share of each rank in the tokens of a step, logged"),
    )
}
"""What `slime plugins new` writes, by its word, in the order in which a sample meets it."""
