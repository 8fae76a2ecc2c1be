"""Groups of a draw for the tests of preparation and splitting."""

from hypothesis import strategies as st

from slime_core.sample import Group, GroupId, Sample


@st.composite
def groups_of(draw: st.DrawFn) -> list[Group]:
    """Groups of samples with unique response tokens, few distinct prompts, masks, removed and unscored samples."""
    token = iter(range(100, 10**6))
    groups = []
    for number in range(draw(st.integers(1, 7))):
        samples = []
        for index in range(draw(st.integers(1, 4))):
            prompt = [draw(st.integers(1, 3))] * draw(st.integers(1, 3))
            length = draw(st.integers(0, 5))
            sample = Sample(group_index=number, index=index, tokens=prompt)
            sample.reward = draw(st.sampled_from([0.0, 1.0, 0.5, None]))
            for _ in range(length):
                trainable = draw(st.booleans())
                sample.append_response_tokens(
                    tokens=[next(token)],
                    log_probs=[-0.25 * draw(st.integers(0, 9))] if trainable else None,
                    trainable=trainable,
                    weight_version="0" if trainable else None,
                )
            sample.remove_sample = draw(st.booleans())
            samples.append(sample)
        group = Group(GroupId("made", 0, number, number), samples)
        if draw(st.booleans()):
            group.freeze()
        groups.append(group)
    return groups
