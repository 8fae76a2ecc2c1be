import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from chat import load_chat
from test_spans import execution, sample

from slime_agent_openai.conversations import page
from slime_core import Status
from slime_core.data import HfTokenizer

HOSTILE = "</pre><script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> HfTokenizer:
    return load_chat(tmp_path_factory.mktemp("chatml"))


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


def test_what_a_model_wrote_is_text_on_the_page(tokenizer: HfTokenizer) -> None:
    read = Read(hostile(tokenizer))
    assert read.text.count(HOSTILE) == 8  # title and heading, prompt, answer, tool, agent, reason, error
    assert not {"script", "img"} & set(read.elements)


def test_nothing_is_fetched_and_nothing_may_run(tokenizer: HfTokenizer) -> None:
    html = hostile(tokenizer)
    assert "default-src 'none'" in html
    assert not re.findall(r"<[^>]*\b(?:src|href)=", html)


@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome on PATH")
def test_a_browser_shows_it_and_runs_nothing(tokenizer: HfTokenizer, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(hostile(tokenizer), "utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    assert BROWSER is not None
    ran = subprocess.run(
        [BROWSER, *options, profile, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=120
    )
    read = Read(ran.stdout)
    assert read.elements.count("details") == 1
    assert read.text.count(HOSTILE) == 8
    assert "<title>run</title>" not in ran.stdout


def test_branches_are_framed_and_say_what_came_of_them(tokenizer: HfTokenizer) -> None:
    hi, end = tokenizer.encode("hello"), tokenizer.encode("42")
    first = sample(("prompt", hi), ("model", hi), ("user", [1]), ("model", end))
    second = sample(("prompt", hi), ("again", hi), ("user", [2]), ("model", end), reward=0.25, metadata={"main": True})
    text = page("run", [execution(first, second)], tokenizer)
    assert text.count('class="branch"') == 2
    assert "rows:e0:r0:d0 #0: reward 0.25, completed, 2 samples" in text
    assert Read(text).text.count("hello") == 2  # the prompt and the turn that both have, once


def test_a_failed_sample_says_why(tokenizer: HfTokenizer) -> None:
    failed = sample(("prompt", [1]), ("model", [2]), status=Status.FAILED, reward=None, failure_reason="agent_timeout")
    failed.metadata["failure_detail"] = "it took longer than 600 s"
    text = Read(page("run", [execution(failed)], tokenizer)).text
    assert "no reward, failed, 1 tokens trained on, agent_timeout" in text
    assert "it took longer than 600 s" in text


def test_without_a_tokenizer_ids_are_shown() -> None:
    assert "3 4" in Read(page("run", [execution(sample(("prompt", [1]), ("model", [3, 4])))], None)).text
