import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from pydantic import ValidationError

from slime_core import Score, Unscored
from tests.tables import table


class Judge(BaseHTTPRequestHandler):
    """Answers what the test put there, and keeps what it was asked."""

    answers: ClassVar[list[tuple[int, bytes]]] = []
    asked: ClassVar[list[dict[str, object]]] = []

    def do_POST(self) -> None:
        self.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        status, body = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        return


@pytest.fixture
def url() -> Iterator[str]:
    Judge.answers, Judge.asked = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Judge)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/score"
    server.shutdown()
    server.server_close()
    thread.join()


def test_slime_payload_is_posted(score: Callable[..., object], url: str) -> None:
    Judge.answers = [(200, b"0.25")]
    assert score("remote_rm", "4", r"\boxed{4}", rm_url=url) == Score(0.25)
    assert Judge.asked == [{"prompt": "", "response": r"\boxed{4}", "label": "4"}]


def test_the_boxed_variant_posts_the_box(score: Callable[..., object], url: str) -> None:
    Judge.answers = [(200, b'{"score": 1, "style": 0.5, "note": "fine"}')]
    assert score("boxed_remote_rm", "4", r"so \boxed{4}", rm_url=url) == Score(1.0, {"style": 0.5})
    assert Judge.asked[0]["response"] == "4"


def test_busy_server_is_retried(score: Callable[..., object], url: str) -> None:
    Judge.answers = [(503, b""), (200, b"1")]
    assert score("remote_rm", "4", "4", rm_url=url) == Score(1.0)
    assert len(Judge.asked) == 2


def test_bad_request_is_not_retried(score: Callable[..., object], url: str) -> None:
    Judge.answers = [(422, b"")]
    found = score("remote_rm", "4", "4", rm_url=url)
    assert isinstance(found, Unscored)
    assert (found.reason, found.retryable, len(Judge.asked)) == ("remote_rm was refused", False, 1)


@table("answer", [b"NaN", b"Infinity", b'{"other": 1}', b"[]", b"null", b"not json", b""])
def test_an_answer_without_a_score_is_unscored(score: Callable[..., object], url: str, answer: bytes) -> None:
    Judge.answers = [(200, answer)]
    assert isinstance(score("remote_rm", "4", "4", rm_url=url), Unscored)


def test_unreachable_server_is_unscored_and_retryable(score: Callable[..., object]) -> None:
    found = score("remote_rm", "4", "4", rm_url="http://127.0.0.1:9/", max_retries=0)
    assert isinstance(found, Unscored)
    assert (found.reason, found.retryable) == ("remote_rm did not answer", True)


def test_without_an_address_nothing_is_posted(score: Callable[..., object]) -> None:
    assert isinstance(score("remote_rm", "4", "4"), Unscored)


def test_invalid_address_is_refused(score: Callable[..., object]) -> None:
    with pytest.raises(ValidationError, match="expected an address like"):
        score("remote_rm", "4", "4", rm_url="file:///etc/passwd")
