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
    requires: tuple[str, ...] = ()
    """What the package needs besides slime-core; other packages of slime-core without bounds."""

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
        Kind("group_reward", "1 for the answer that most of the group gives, else 0"),
        Kind("group_filter", "Drop groups that are solved too often to teach anything"),
        Kind("sample_filter", "Take overlong responses out of training"),
        Kind("buffer", "Hand out the newest groups, and forget the oldest when full"),
        Kind("buffer_filter", "The newest groups first, and stale ones never"),
        Kind("reward_shaper", "A small price for every token of the response"),
        Kind("batch_transform", "Train on the end of the response alone"),
        Kind("advantage", "Rewards relative to the mean of the others in the group (RLOO)", requires=("slime-train",)),
        Kind("loss", "REINFORCE with a truncated importance weight", requires=("slime-train",)),
        Kind("correction", "Truncated importance sampling", requires=("slime-train",)),
        Kind("engine", "A bigram policy, sampled in the driver itself"),
        Kind(
            "trainer",
            "Gradient descent on a bigram policy, on one rank",
            requires=("slime-train", "safetensors>=0.5", "torch>=2.9"),
        ),
        Kind(
            "transport",
            "Weights as a compressed file of each version, in the run folder",
            requires=("safetensors>=0.5", "torch>=2.9"),
        ),
        Kind("launcher", "Workers as processes of this machine, each started from nothing"),
        Kind("tracker", "Metrics as a CSV file in the run folder"),
        Kind("check", "Room on the disk for checkpoints"),
        Kind("run_hooks", "A line in a log file for every rollout"),
        Kind("rank_hooks", "The share of each rank in the tokens of a step, logged"),
    )
}
"""What `slime plugins new` writes, by its word, in the order in which a sample meets it."""
