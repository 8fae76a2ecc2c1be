"""The conversations of one execution, as spans and as a page."""

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from slime_agent_openai.conversations import Execution, executions_of, page, spans_of
from slime_core import Sample, Status
from slime_core.data import HfTokenizer
from slime_core.rollout import main_of
from slime_core.sample import Group, GroupId


def sample(*parts: tuple[str, list[int]], execution: int = 1, **fields: object) -> Sample:
    """Of parts that are the model's (`model`), or somebody else's; the first is the prompt."""
    made = Sample(index=0, rollout_id=execution, tokens=list(parts[0][1]), status=Status.COMPLETED, reward=1.0)
    for who, ids in parts[1:]:
        if who == "model":
            log_probs = [-0.5 - place for place in range(len(ids))]
            made.append_response_tokens(tokens=ids, log_probs=log_probs, weight_version="7")
        else:
            made.append_response_tokens(tokens=ids, trainable=False)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def execution(*samples: Sample) -> Execution:
    (made,) = executions_of([Group(GroupId("rows", 0, 0, 0), list(samples))])
    return made


def shown(made: Execution) -> list[tuple[int, str, list[int]]]:
    return [(span.depth, span.kind.value, [token.id for token in span.tokens]) for span in made.walk()]


def test_conversation_spans_are_prompt_and_turns() -> None:
    made = execution(sample(("prompt", [1, 2]), ("model", [3, 4]), ("tool", [5]), ("model", [6])))
    assert shown(made) == [(0, "prompt", [1, 2]), (0, "model", [3, 4]), (0, "context", [5]), (0, "model", [6])]
    spans = list(made.walk())
    assert [token.log_prob for token in spans[1].tokens] == [-0.5, -1.5]
    assert (spans[1].version, spans[0].version) == ("7", "")
    assert spans[-1].ends == list(made.samples)


def test_shared_prefix_is_one_span() -> None:
    first = sample(("prompt", [1]), ("model", [2, 3]), ("user", [4]), ("model", [5]))
    second = sample(("prompt", [1]), ("again", [2, 3]), ("user", [9]), ("model", [6]), metadata={"main": True})
    made = execution(first, second)
    assert shown(made) == [
        (0, "prompt", [1]),
        (0, "model", [2, 3]),
        (1, "context", [4]),
        (1, "model", [5]),
        (1, "context", [9]),
        (1, "model", [6]),
    ]
    assert main_of(made.samples) is second


PARTS = st.lists(st.tuples(st.sampled_from(["model", "tool"]), st.lists(st.integers(0, 2), min_size=1, max_size=3)))


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_spans_cover_exactly_the_samples(conversations: list[list[tuple[str, list[int]]]]) -> None:
    samples = [sample(("prompt", [1]), *parts) for parts in conversations]
    found: list[tuple[int, list[int]]] = []

    def follow(spans: object, before: list[int]) -> None:
        for span in spans:  # type: ignore[attr-defined]
            path = before + [token.id for token in span.tokens]
            found.extend((id(ended), path) for ended in span.ends)
            follow(span.children, path)

    follow(spans_of(samples), [])
    assert sorted(found) == sorted((id(each), list(each.tokens)) for each in samples)


HOSTILE = "</pre><script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"


class Read(HTMLParser):
    """What a browser would show, and which elements there are."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.elements = "", list[str]()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile(tokenizer: HfTokenizer) -> str:
    ids = tokenizer.encode(HOSTILE)
    made = sample(("prompt", ids), ("model", ids), ("tool", ids), label=HOSTILE, failure_reason=HOSTILE)
    made.metadata = {"agent": HOSTILE, "failure_detail": HOSTILE}
    return page(HOSTILE, [execution(made)], tokenizer)


def test_page_escapes_model_output(tokenizer: HfTokenizer) -> None:
    html = hostile(tokenizer)
    assert "default-src 'none'" in html
    assert not re.findall(r"<[^>]*\b(?:src|href)=", html)
    read = Read(html)
    assert read.text.count(HOSTILE) == 8  # title and heading, prompt, answer, tool, agent, reason, error
    assert not {"script", "img"} & set(read.elements)


def test_page_frames_branches_with_outcomes(tokenizer: HfTokenizer) -> None:
    hi, end = tokenizer.encode("hello"), tokenizer.encode("42")
    first = sample(("prompt", hi), ("model", hi), ("user", [1]), ("model", end))
    second = sample(("prompt", hi), ("again", hi), ("user", [2]), ("model", end), reward=0.25, metadata={"main": True})
    text = page("run", [execution(first, second)], tokenizer)
    assert text.count('class="branch"') == 2
    assert "rows:e0:r0:d0 #0: reward 0.25, completed, 2 samples" in text
    assert Read(text).text.count("hello") == 2  # the prompt and the turn that both have, once
