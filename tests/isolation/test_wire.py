"""What goes to a worker arrives as it was, and what is not sent is not there."""

import copy
import json
from dataclasses import fields
from multiprocessing.reduction import ForkingPickler

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slime_core.errors import ContractError
from slime_core.processes.worker import copy_fields, pickled, receive_verdict, send_verdict
from slime_core.roles import LIGHT_FIELDS
from slime_core.sample import Sample, Status
from slime_core.score import NotApplicable, Score, Unscored, Verdict
from slime_testing import make_sample
from tests.tables import table

FIELDS = tuple(item.name for item in fields(Sample))
numbers = st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
verdicts = (
    st.builds(Score, numbers, st.dictionaries(st.text(), numbers, max_size=3))
    | st.builds(Unscored, st.text(min_size=1), st.booleans(), st.text())
    | st.just(NotApplicable())
)


@given(
    response=st.text(st.characters(codec=None)), label=values, metadata=st.dictionaries(st.text(), values, max_size=3)
)
def test_a_sample_arrives_as_it_was(response: str, label: object, metadata: dict[str, object]) -> None:
    sample = make_sample("ab", label, metadata=metadata)  # type: ignore[arg-type]
    sample.response = response
    sample.freeze()
    arrived = ForkingPickler.loads(pickled(copy_fields(sample, FIELDS)))
    assert arrived.to_dict() == sample.to_dict()
    assert arrived.status is Status.COMPLETED


@given(verdicts)
def test_a_verdict_arrives_as_it_was(verdict: Verdict) -> None:
    assert receive_verdict(json.loads(json.dumps(send_verdict(verdict)))) == verdict


@given(values)
def test_what_is_no_verdict_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="not a verdict"):
        receive_verdict(value)  # type: ignore[arg-type]


@table("name", sorted(set(FIELDS) - set(LIGHT_FIELDS)))
def test_a_field_that_was_not_sent_raises_with_what_to_declare(name: str) -> None:
    sample = ForkingPickler.loads(pickled(copy_fields(make_sample(), LIGHT_FIELDS)))
    with pytest.raises(ContractError, match=rf"sample\.{name} was read.*fields=\(\*LIGHT_FIELDS, '{name}'\)"):
        getattr(sample, name)
    with pytest.raises(ContractError, match=r"sample\.tokens was read"):
        _ = sample.prompt_length


def test_a_sample_with_holes_can_be_shown_and_copied() -> None:
    sample = copy_fields(make_sample("four"), LIGHT_FIELDS)
    assert "response='four'" in repr(sample)
    assert copy.deepcopy(sample).copied_fields() == sample.copied_fields()
    assert not hasattr(sample, "no_field_of_any_sample")
