"""Steps of a draw by share: whole groups, balanced, every sample once, and one report a share."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.batching.prepare import Preparation, TrainGroup
from slime_core.batching.split import Cost, Shares, split_step, steps_of
from slime_core.errors import ConfigError, ContractError
from slime_core.roles import Draw, SampleField, Settings, StepResult, TrainBatch, TrainerSpec
from slime_core.roles.trainer import INPUT_FIELDS
from slime_core.sample import Group, GroupId, Sample, plain_json
from tests.tables import table
from tests.train.draws import groups_of


def split(groups: list[Group], ranks: int, weights: list[float] | None = None) -> list[TrainBatch]:
    return split_step(prepared(groups, weights), ranks, rollout_id=7)


def prepared(groups: list[Group], weights: list[float] | None = None) -> list[TrainGroup]:
    return Preparation().prepare(Draw(groups, weights or [1.0] * len(groups)), rollout_id=7)


def unpack(batch: TrainBatch) -> list[tuple[object, ...]]:
    """The samples of a batch as (group, prompt, response, mask, log-probs, reward, weight)."""
    found, start = [], 0
    for place, length in enumerate(batch.response_lengths_S):
        part = slice(start, start + length)
        start += length
        found.append(
            (
                batch.group_index_S[place],
                tuple(batch.prompts_P[batch.prompt_index_S[place]]),
                tuple(batch.tokens_T[part]),
                tuple(batch.loss_mask_T[part]),
                tuple(batch.rollout_log_probs_T[part]),
                batch.rewards_S[place],
                batch.weights_S[place],
            )
        )
    assert start == len(batch.tokens_T) == len(batch.loss_mask_T) == len(batch.rollout_log_probs_T)
    return found


def has_tokens(group: Group) -> bool:
    return any(sample.response_length > 0 and sample.reward is not None for sample in group.samples)


def expected(groups: list[Group], weights: list[float]) -> list[tuple[object, ...]]:
    return [
        (
            number,
            tuple(sample.tokens[: sample.prompt_length]),
            tuple(sample.tokens[sample.prompt_length :]),
            (0,) * sample.response_length if sample.remove_sample else tuple(sample.loss_mask or ()),
            tuple(sample.rollout_log_probs or ()),
            sample.reward,
            weights[number],
        )
        for number, group in enumerate(groups)
        for sample in group.samples
        if sample.reward is not None and has_tokens(group)
    ]


@given(groups=groups_of(), ranks=st.integers(1, 4), data=st.data())
def test_every_scored_sample_arrives_once_with_its_own_columns(
    groups: list[Group], ranks: int, data: st.DataObject
) -> None:
    weights = [data.draw(st.sampled_from([1.0, 0.5])) for _ in groups]
    cost = data.draw(st.sampled_from([None, Cost(token=2.0, attended=1.0, predicted=3.0)]))
    batches = split_step(prepared(groups, weights), ranks, rollout_id=7, cost=cost)
    assert len(batches) == ranks
    assert Counter(each for batch in batches for each in unpack(batch)) == Counter(expected(groups, weights))


@given(groups=groups_of(), ranks=st.integers(1, 4))
def test_groups_are_whole_in_order_and_samples_of_a_prompt_are_neighbours(groups: list[Group], ranks: int) -> None:
    batches = split(groups, ranks)
    places = [set(batch.group_index_S) for batch in batches]
    assert sum(map(len, places)) == len(set[int]().union(*places))
    for batch in batches:
        assert list(batch.group_index_S) == sorted(batch.group_index_S)
        # Numbered in order of appearance: so neighbours, and never shared between groups.
        prompts = list(batch.prompt_index_S)
        assert prompts == sorted(prompts)
        assert sorted(set(prompts)) == list(range(len(batch.prompts_P)))
        groups_of_prompt = {(prompt, group) for prompt, group in zip(prompts, batch.group_index_S, strict=True)}
        assert len(groups_of_prompt) == len(batch.prompts_P)


@given(groups=groups_of(), ranks=st.integers(1, 4))
def test_denominators_count_the_whole_step(groups: list[Group], ranks: int) -> None:
    batches = split(groups, ranks)
    masks = [mask for batch in batches for _, _, _, mask, *_ in unpack(batch)]
    trained = [sum(mask) for mask in masks]  # type: ignore[call-overload]
    for batch in batches:
        assert batch.step_tokens == sum(trained)
        assert batch.step_samples == sum(count > 0 for count in trained)
        assert batch.rollout_id == 7


@given(groups=groups_of(), ranks=st.integers(1, 4), data=st.data())
def test_samples_of_one_execution_share_a_number_and_count_once(
    groups: list[Group], ranks: int, data: st.DataObject
) -> None:
    """Also where another group has the same `rollout_id`, as numbers of different data sets may agree."""
    for group in groups:
        for sample in group.samples:
            sample.rollout_id = data.draw(st.sampled_from([None, 5, 6]))
    batches = split(groups, ranks)
    found = {
        tuple(response): rollout
        for batch in batches
        for (_, _, response, *_), rollout in zip(unpack(batch), batch.rollout_index_S, strict=True)
        if response  # its tokens tell a sample from all others
    }
    trained = set()
    told: dict[int, object] = {}
    for number, group in enumerate(groups):
        for index, sample in enumerate(group.samples):
            rollout = found.get(tuple(sample.tokens[sample.prompt_length :]))
            if rollout is None or not sample.response_length:
                continue
            identity = (number, sample.rollout_id) if sample.rollout_id is not None else (number, None, index)
            assert told.setdefault(rollout, identity) == identity
            if not sample.remove_sample and any(sample.loss_mask or ()):
                trained.add(identity)
    assert len(set(told.values())) == len(told)
    assert {batch.step_samples for batch in batches} == {len(trained)}


INTS = st.none() | st.lists(st.integers(0, 9), max_size=4)
BROUGHT = {
    SampleField.ROLLOUT_ROUTED_EXPERTS: INTS,
    SampleField.ROLLOUT_TOP_P_TOKEN_IDS: INTS,
    SampleField.ROLLOUT_TOP_P_TOKEN_OFFSETS: INTS,
    SampleField.MULTIMODAL_TRAIN_INPUTS: st.none() | st.fixed_dictionaries({"pixels": st.lists(st.floats(0, 1))}),
    SampleField.MULTIMODAL_TRAIN_INPUT_ID: st.none() | st.text(max_size=3),
    SampleField.TRAIN_METADATA: st.none() | st.dictionaries(st.text(max_size=2), st.integers()),
}
"""What samples bring, of ragged lengths."""


@given(groups=groups_of(), ranks=st.integers(1, 4), steps=st.integers(1, 3), data=st.data())
def test_what_a_trainer_reads_comes_out_of_steps_and_ranks_with_its_sample(
    groups: list[Group], ranks: int, steps: int, data: st.DataObject
) -> None:
    reads = INPUT_FIELDS | data.draw(st.frozensets(st.sampled_from(SampleField)))
    cost = data.draw(st.sampled_from([None, Cost(token=2.0, attended=1.0, predicted=3.0)]))
    for group in groups:
        for sample in group.samples:
            for field, values in BROUGHT.items():
                setattr(sample, field.value, data.draw(values))
        if data.draw(st.booleans()):
            group.freeze()
    found = []
    for of_step in steps_of(prepared(groups), steps):
        for batch in split_step(of_step, ranks, rollout_id=7, cost=cost, reads=reads):
            assert batch.fields_S.keys() == reads
            for place, each in enumerate(unpack(batch)):
                found.append((each[1:], [plain_json(batch.fields_S[field][place]) for field in sorted(reads, key=str)]))
    samples = [sample for group in groups if has_tokens(group) for sample in group.samples if sample.reward is not None]
    wanted = [
        (each[1:], [plain_json(getattr(sample, field.value)) for field in sorted(reads, key=str)])
        for each, sample in zip(expected(groups, [1.0] * len(groups)), samples, strict=True)
    ]
    assert sorted(map(repr, found)) == sorted(map(repr, wanted))


def test_what_a_trainer_does_not_read_is_left_behind_unless_it_is_part_of_the_input() -> None:
    group = made(0, [3, 2], [0.0, 1.0])
    group.samples[1].rollout_routed_experts = [0, 1, 2, 3]
    group.samples[1].train_metadata = {"note": 1}
    [batch] = split([group], 1)
    assert batch.fields_S == {}
    group.samples[1].multimodal_train_inputs = {"pixels": [0.5]}
    with pytest.raises(ContractError) as raised:
        split([group], 1)
    assert str(raised.value) == (
        "sample 1 of group 0 has multimodal_train_inputs, which the trainer does not read: its log-probs would "
        "cover the text alone. Choose a trainer whose spec reads SampleField.MULTIMODAL_TRAIN_INPUTS, or a generator "
        "that does not set it"
    )
    group.samples[1].reward = None  # not trained on
    assert split([group], 1)[0].fields_S == {}


@given(groups=groups_of(), ranks=st.integers(1, 4))
def test_the_split_is_a_function_of_the_step(groups: list[Group], ranks: int) -> None:
    again = [Group.from_dict(group.to_dict()) for group in groups]
    assert split(groups, ranks) == split(again, ranks)


def made(draw: int, lengths: list[int], rewards: list[float]) -> Group:
    samples = []
    for index, (length, reward) in enumerate(zip(lengths, rewards, strict=True)):
        sample = Sample(group_index=draw, index=index, tokens=[1, 2, 3], reward=reward)
        sample.append_response_tokens(tokens=[5] * length, log_probs=[-0.5] * length, weight_version="0")
        samples.append(sample)
    return Group(GroupId("made", 0, draw, draw), samples)


@table(
    "prompts, responses, shares",
    [
        ([1, 1, 1, 1], [1, 1, 1, 4], [[3], [0, 1, 2]]),  # the longest is dealt first
        ([9, 1, 1, 1], [1, 2, 2, 2], [[0], [1, 2, 3]]),  # a prompt costs too, once for the whole group
    ],
)
def test_tokens_are_balanced(prompts: list[int], responses: list[int], shares: list[list[int]]) -> None:
    groups = []
    for draw, (prompt, response) in enumerate(zip(prompts, responses, strict=True)):
        group = made(draw, [response, response], [0.0, 1.0])
        for sample in group.samples:
            sample.tokens = [1] * prompt + [5] * response
        groups.append(group)
    batches = split(groups, 2)
    assert [sorted(set(batch.group_index_S)) for batch in batches] == shares


def test_a_sample_that_no_sampler_scored_has_log_probs_of_zero() -> None:
    scored, without = made(0, [2, 3], [0.0, 1.0]).samples
    without.rollout_log_probs = None
    [batch] = split([Group(GroupId("made", 0, 0, 0), [scored, without])], 1)
    assert list(batch.rollout_log_probs_T) == [-0.5, -0.5, 0.0, 0.0, 0.0]


@given(count=st.integers(0, 12), num_steps=st.integers(1, 5))
def test_groups_are_dealt_to_steps_in_turn(count: int, num_steps: int) -> None:
    groups = [made(draw, [1], [0.0]) for draw in range(count)]
    steps = list(steps_of(prepared(groups, [float(draw) for draw in range(count)]), num_steps))
    dealt = [[each.group.id.draw for each in share] for share in steps]
    assert dealt == [list(range(step, count, num_steps)) for step in range(min(num_steps, count))]
    assert [[each.weight for each in share] for share in steps] == dealt


@table("ranks", [1, 2])
def test_no_groups_make_empty_batches(ranks: int) -> None:
    assert [len(batch.tokens_T) for batch in split([], ranks)] == [0] * ranks


# What a group costs.


def test_a_group_shares_its_prompt_and_attends_to_it() -> None:
    cost = Cost(token=1.0, attended=10.0, predicted=100.0)
    assert cost.of(4, [2, 3]) == (4 + 5) + 10.0 * (8 + 2 * (4 + 1) + 3 * (4 + 1.5)) + 100.0 * 5


SIZES_OF_A_MODEL = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 100,
    "vocab_size": 50,
}


@table(
    "names",
    [
        {"hidden_size": "n_embd", "num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
        {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"},
        {"intermediate_size": "n_inner"},
    ],
)
def test_what_other_families_call_a_size_is_the_same_size(names: dict[str, str]) -> None:
    other = {names.get(name, name): size for name, size in SIZES_OF_A_MODEL.items()}
    assert Cost.of_config(other) == Cost.of_config(SIZES_OF_A_MODEL)


def test_a_cost_by_hand() -> None:
    """Attention 4 matrices of 64 x 64, the inner layer 2 of 64 x 100, or 3 where it is gated; two operations each."""
    plain = Cost.of_config(SIZES_OF_A_MODEL)
    assert plain == Cost(2 * 3 * (4 * 64 * 64 + 2 * 64 * 100), 4 * 3 * 64, 2 * 64 * 50)
    for gate in ("silu", "swish"):
        assert Cost.of_config({**SIZES_OF_A_MODEL, "hidden_act": gate}).token == 2 * 3 * (4 * 64 * 64 + 3 * 64 * 100)
    assert Cost.of_config({**SIZES_OF_A_MODEL, "hidden_act": "gelu"}) == plain
    gemma = {**SIZES_OF_A_MODEL, "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh"}
    assert Cost.of_config(gemma).token == 2 * 3 * (4 * 64 * 64 + 3 * 64 * 100)
    experts = {**SIZES_OF_A_MODEL, "num_experts_per_tok": 4}
    assert Cost.of_config(experts).token == 2 * 3 * (4 * 64 * 64 + 4 * 2 * 64 * 100)
    assert Cost.of_config({**experts, "moe_intermediate_size": 10}).token == 2 * 3 * (4 * 64 * 64 + 4 * 2 * 64 * 10)
    wide = {name: size for name, size in SIZES_OF_A_MODEL.items() if name != "intermediate_size"}
    assert Cost.of_config(wide).token == 2 * 3 * (4 * 64 * 64 + 2 * 64 * 256)
    few = {**SIZES_OF_A_MODEL, "head_dim": 32, "num_key_value_heads": 2}
    assert Cost.of_config(few) == Cost(2 * 3 * (2 * 64 * 128 + 2 * 64 * 64 + 2 * 64 * 100), 4 * 3 * 128, 2 * 64 * 50)


@table("name", [name for name in SIZES_OF_A_MODEL if name != "intermediate_size"])
def test_the_size_that_is_missing_is_named(name: str) -> None:
    config = {key: size for key, size in SIZES_OF_A_MODEL.items() if key != name}
    with pytest.raises(ConfigError, match=rf"the model's config.json has no {name}: remove balance_by_flops"):
        Cost.of_config(config)


def test_a_model_of_unknown_size_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"balance_by_flops: the model's config.json has no hidden_size"):
        Cost.of_config({"vocab_size": 5})


# Shares: ranks of one replica have one share of a step, and report one thing of it.

RESULT = StepResult({"loss": 2.0, "odd": float("nan")}, 100, {"grad_norm": 0.5}, {3: 0.25}, frozenset({"loss"}))
OTHER = replace(RESULT, tokens=90, scores={4: 1.0})


def of(*shares: int) -> Shares:
    return Shares(shares, "mega")


@given(st.lists(st.integers(0, 3), min_size=1, max_size=8).filter(lambda each: set(each) == set(range(max(each) + 1))))
def test_every_share_has_one_rank_that_reports_and_every_rank_its_share(shares: list[int]) -> None:
    found = of(*shares)
    assert [shares[rank] for rank in found.reporting_ranks] == list(range(found.count))
    assert found.per_rank([f"share {number}" for number in range(found.count)]) == [f"share {each}" for each in shares]


def test_of_ranks_that_agree_one_is_heard() -> None:
    close = replace(RESULT, metrics={"loss": 2.00001, "odd": float("nan")}, scores={3: 0.250001})
    assert of(0, 1, 0, 1).merged([RESULT, OTHER, close, OTHER]) == [RESULT, OTHER]
    assert of(0, 1).merged([RESULT, OTHER]) == [RESULT, OTHER]


@table(
    "other, says",
    [
        (replace(RESULT, tokens=99), "tokens is 100 on rank 1 and 99 on rank 3"),
        (
            replace(RESULT, metrics={**RESULT.metrics, "loss": 2.1}),
            r"metrics 'loss' is 2.0 on rank 1 and 2.1 on rank 3",
        ),
        (replace(RESULT, metrics={"loss": 2.0}), "metrics 'odd' is nan on rank 1 and None on rank 3"),
        (replace(RESULT, scalars={"grad_norm": 0.6}), r"scalars 'grad_norm' is 0.5 on rank 1 and 0.6 on rank 3"),
        (replace(RESULT, scores={3: 0.3}), r"scores of group '3' is 0.25 on rank 1 and 0.3 on rank 3"),
        (replace(RESULT, over_all_tokens=frozenset()), r"over_all_tokens is \['loss'\] on rank 1 and \[\] on rank 3"),
    ],
)
def test_ranks_of_a_share_that_differ_are_named_with_the_first_difference(other: StepResult, says: str) -> None:
    with pytest.raises(ContractError, match=rf"plugin mega: ranks 1 and 3 compute share 1, .*: {says}\. "):
        of(0, 1, 0, 1).merged([OTHER, RESULT, OTHER, other])


def _rank(rank: int, world_size: int, setup: object) -> None:
    """Never built."""


@table("shares, ranks", [([0, 0, 1, 1], 4), ([1, 0], 2), ([0], 1)])
def test_a_spec_says_the_share_of_each_rank(shares: list[int], ranks: int) -> None:
    spec = TrainerSpec("mega", _rank, world_size=lambda settings: ranks, shares=lambda settings: shares)
    assert spec.share_of_ranks(Settings()) == tuple(shares)
    assert replace(spec, shares=None).share_of_ranks(Settings()) == tuple(range(ranks))


@table("shares", [[0, 1], [0, 0, 2, 2], [1, 1, 2, 2], []])
def test_shares_that_do_not_fit_the_ranks_are_refused(shares: list[int]) -> None:
    spec = TrainerSpec("mega", _rank, world_size=lambda settings: 4, shares=lambda settings: shares)
    with pytest.raises(ConfigError, match=r"trainer 'mega': shares gives .* for 4 ranks; expected one number a rank"):
        spec.share_of_ranks(Settings())
