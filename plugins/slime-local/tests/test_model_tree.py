"""The prefix tree: every distinct prefix once, every text readable along its path."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slime_local.model.attention import prefix_tree

TEXTS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=20)


@given(texts=TEXTS)
def test_each_distinct_prefix_is_one_node(texts: list[list[int]]) -> None:
    tree = prefix_tree(texts)
    prefixes = {tuple(text[: end + 1]) for text in texts for end in range(len(text))}
    assert len(tree.tokens) == len(tree.depths) == len(prefixes)
    node_of: dict[tuple[int, ...], int] = {}
    for text, path in zip(texts, tree.paths, strict=True):
        assert tree.tokens[path].tolist() == text
        assert tree.depths[path].tolist() == list(range(len(text)))
        for end, node in enumerate(path.tolist()):
            assert node_of.setdefault(tuple(text[: end + 1]), node) == node


@given(texts=TEXTS)
def test_the_branches_hold_all_nodes_in_order(texts: list[list[int]]) -> None:
    tree = prefix_tree(texts)
    own = np.concatenate([branch.path[-branch.new :] for branch in tree.branches])
    assert own.tolist() == list(range(len(tree.tokens)))
