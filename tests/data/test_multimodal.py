"""Media: every placeholder becomes the next item; nothing is torn apart, dropped or left over."""

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from slime_core.data import PromptSource
from slime_core.errors import DataError
from slime_core.sample import Sample
from tests.tables import table

MakeSource = Callable[..., PromptSource]
KEYS = {"image": "images", "audio": "sound"}
TEXT = st.text(st.characters(blacklist_characters="<"), max_size=5)


def one(source: PromptSource) -> Sample:
    return asyncio.run(source.draw(1))[0].samples[0]


def test_a_prompt_becomes_messages_with_parts(make_source: MakeSource) -> None:
    item = {"type": "image", "image": "b.png", "max_pixels": 50176}
    row = {"input": "<image> and <image>?", "images": ["a.png", item], "sound": None}
    sample = one(make_source([row], multimodal_keys=KEYS))
    content = [{"type": "image", "image": "a.png"}, {"type": "text", "text": " and "}, item]
    assert sample.prompt == [{"role": "user", "content": [*content, {"type": "text", "text": "?"}]}]
    assert sample.multimodal_inputs == {"image": ["a.png", item]}


OWN = [{"role": "user", "content": [{"type": "image", "image": "a.png"}, {"type": "text", "text": "?"}]}]


@table(
    "row, prompt, media",
    [
        ({"input": "plain <b>text</b>"}, "plain <b>text</b>", None),
        ({"input": OWN, "images": ["a.png"]}, OWN, {"image": ["a.png"]}),
    ],
)
def test_what_has_no_placeholder_stays(
    make_source: MakeSource, row: dict[str, object], prompt: object, media: object
) -> None:
    sample = one(make_source([row], multimodal_keys=KEYS))
    assert (sample.prompt, sample.multimodal_inputs) == (prompt, media)
    spoken = make_source([{"input": "<audio>Hm?", "sound": "a.wav"}], multimodal_keys=KEYS, apply_chat_template=True)
    assert "{'type': 'audio', 'audio': 'a.wav'}" in str(one(spoken).prompt)


def test_samples_share_no_media(make_source: MakeSource) -> None:
    first, second = asyncio.run(
        make_source([{"input": "<image>", "images": [{"image": "a.png"}]}], multimodal_keys=KEYS).draw(1)
    )[0].samples
    assert first.multimodal_inputs is not None
    first.multimodal_inputs["image"] = "changed"
    assert isinstance(first.prompt, list)
    first.prompt[0]["content"] = "changed"
    assert second.multimodal_inputs == {"image": [{"image": "a.png"}]}
    assert second.prompt == [{"role": "user", "content": [{"image": "a.png"}]}]


@table(
    "row, says",
    [
        ({"input": "<image><image>", "images": ["a"]}, "says <image> more often than the row has one"),
        ({"input": "<audio>"}, "says <audio> more often"),
        ({"input": "<image>", "images": ["a", "b"]}, "2 of image, but only 1 times <image> in the prompt"),
        ({"input": "none", "images": ["a"]}, "1 of image, but only 0 times"),
    ],
)
def test_a_wrong_count_is_a_bad_row(make_source: MakeSource, row: dict[str, object], says: str) -> None:
    with pytest.raises(DataError, match=rf"\.jsonl:1: .*{says}"):
        make_source([row], multimodal_keys=KEYS)
