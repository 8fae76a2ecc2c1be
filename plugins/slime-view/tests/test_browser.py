"""The pages in a real browser: filtered, followed, compared, on a phone, by keyboard alone, with hostile texts."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from slime_core.cli import run_cli

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser

MakeRun = Callable[..., "Made"]  # noqa: F821  # of conftest.py
Page = "playwright.Page"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TOKEN = "a-token"
OUTS = (
    "",
    "'",
    '"',
    "</pre>",
    "</td></table>",
    '"></option></select>',
    "-->",
    "]]>",
    "</script>",
    "\\u003c/title>\x00",
)
PAYLOADS = (
    "<script>window.owned=1</script>",
    "<script src=//other.example/x.js></script>",
    "<img src=x onerror=window.owned=1>",
    "<svg onload=window.owned=1>",
    "<svg><script>window.owned=1</script></svg>",
    "<body onload=window.owned=1>",
    "<iframe srcdoc='<script>parent.owned=1</script>'></iframe>",
    "<a href=javascript:window.owned=1 autofocus onfocus=window.owned=1>x</a>",
    "<details open ontoggle=window.owned=1>",
    "<input autofocus onfocus=window.owned=1>",
    "<style>*{background:url(//other.example/x)}</style>",
    "<link rel=stylesheet href=//other.example/x.css>",
    "<meta http-equiv=refresh content=0;url=//other.example/>",
    "<base href=//other.example/>",
    "<form action=//other.example/><button>Show</button></form>",
    "<math><mtext></mtext><mglyph><style><img src=x onerror=window.owned=1>",
    "<template><img src=x onerror=window.owned=1></template>",
    "${window.owned=1}{{window.owned=1}}<%=window.owned=1%>",
    "&lt;script&gt;window.owned=1&lt;/script&gt;&#x3c;b&#x3e;",
    "javascript:window.owned=1//\u202e\u2028<ScRiPt >window.owned=1</sCrIpT >",
)
HOSTILE = [out + payload for out, payload in product(OUTS, PAYLOADS)]


@pytest.fixture(scope="session")
def chromium() -> Iterator["playwright.Browser"]:
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert path, f"none of {', '.join(BROWSERS)} is installed: apt-get install chromium"
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: "playwright.Browser") -> Iterator["playwright.Page"]:
    """A page; fails on console output, an exception, or a request to another host."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    made, wrong = context.new_page(), list[str]()
    made.set_default_timeout(15_000)
    made.on("console", lambda said: wrong.append(f"console: {said.text}"))
    made.on("pageerror", lambda error: wrong.append(f"raised: {error}"))
    made.on("dialog", lambda dialog: (wrong.append("a dialog"), dialog.dismiss()))
    ours = ("http://127.0.0.1:", "data:,", "file:///")
    made.on("request", lambda asked: asked.url.startswith(ours) or wrong.append(asked.url))
    yield made
    assert wrong == []
    assert made.evaluate("window.owned === undefined")
    context.close()


@pytest.fixture
def served() -> Iterator[Callable[..., str]]:
    """`slime view` of some folders, as a process; the address of a page of it."""
    processes: list[subprocess.Popen[str]] = []

    def start(*runs: "Made") -> str:  # noqa: F821
        command = [sys.executable, "-m", "slime_core", "view", *(str(run.folder) for run in runs), "--port", "0"]
        environment = os.environ | {"SLIME_VIEW_TOKEN": TOKEN}
        processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        return processes[-1].stdout.readline().strip().partition("/?")[0]

    yield start
    for process in processes:
        process.terminate()
        process.wait(30)
        process.stdout.close()


def enter(page: "playwright.Page", address: str) -> None:
    """Open the link that was printed, and wait for the curves."""
    page.goto(f"{address}/?token={TOKEN}")
    page.wait_for_selector(".plot canvas")


def text_of(page: "playwright.Page", selector: str) -> str:
    return str(page.locator(selector).first.text_content())


def test_open_filter_and_drill_down_to_a_token(
    page: "playwright.Page", served: Callable[..., str], make_run: MakeRun
) -> None:
    enter(page, served(make_run()))
    assert "token" not in page.url
    page.click("nav >> text=Samples")
    page.wait_for_selector("tbody tr")
    assert "1 to 28 of 28" in text_of(page, ".pages")
    page.select_option("select[name=status]", "failed")
    page.wait_for_selector(".pages >> text=of 7")
    page.fill("input[name=rollout_min]", "2")
    page.keyboard.press("Enter")
    page.wait_for_selector(".pages >> text=1 to 2 of 2")
    page.go_back()
    page.wait_for_selector(".pages >> text=of 7")
    page.click("text=all samples")
    page.fill("input[name=text]", "FOUR")
    page.click("button >> text=Show")
    page.wait_for_selector(".pages >> text=found in 28 samples")
    page.locator("tbody a.open").nth(1).click()
    page.wait_for_selector(".token")
    assert text_of(page, "#response pre") == "four"
    assert page.locator(".token").nth(3).get_attribute("class") == "token heat3"  # -2 of ln(0.001) is 0.29 of 9
    page.locator(".token").nth(1).click()
    assert "log-prob of the sampler -1" in text_of(page, ".detail")
    page.select_option("#colour", "mask")
    assert page.locator(".token.masked").count() == 1
    assert "colour=mask" in page.url
    assert page.locator("ol li").all_text_contents()[0].startswith("drawn in rollout")
    page.reload()
    page.wait_for_selector(".token.masked")
    page.click("text=its group")
    page.wait_for_selector("article")
    assert page.locator("article").count() == 4


def test_long_search_shows_partial_results(
    page: "playwright.Page", served: Callable[..., str], make_run: MakeRun
) -> None:
    address = served(make_run())
    enter(page, address)

    def late(route: "playwright.Route") -> None:
        """The first answer came to the end of its time after the newest file."""
        if "after=" in route.request.url:
            route.continue_()
        else:
            route.fulfill(json={"rows": [], "after": "rollout_000002:7", "searched": 8})

    page.route("**/api/samples*", late)
    page.goto(f"{address}/samples?text=four")
    page.wait_for_selector(".pages >> text=found in 28 samples that were searched, to the end")
    shown = page.locator("tbody tr td:last-child").all_text_contents()
    assert set(shown) == {"four"}


def test_run_is_followed_and_resume_is_marked(
    page: "playwright.Page", served: Callable[..., str], make_run: MakeRun
) -> None:
    from slime_core.run.resume import note_resume

    run = make_run()
    enter(page, served(run))
    plot = '[data-metric="rollout/raw_reward"] .plot'
    page.wait_for_selector(f'{plot}[data-points="3"][data-marks="0"]')
    run.rollout(3)
    page.wait_for_selector(f'{plot}[data-points="4"]')
    page.wait_for_selector("text=rollout 3, 36 samples")
    lines = (run.folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run.folder / "metrics.jsonl").write_bytes(b"".join(lines[:3]))
    note_resume(run.folder, 2)
    page.wait_for_selector(f'{plot}[data-points="2"][data-marks="1"]')
    page.click("nav >> text=Samples")
    page.wait_for_selector(".pages >> text=of 36")
    run.rollout(4)
    page.wait_for_selector(".pages >> text=of 44")


def test_alarms_are_shown_and_marked(page: "playwright.Page", served: Callable[..., str], make_run: MakeRun) -> None:
    run = make_run()
    enter(page, served(run))
    plot = '[data-metric="rollout/raw_reward"] .plot'
    page.wait_for_selector(f'{plot}[data-points="3"][data-marks="0"]')
    assert page.locator(".alarms").is_hidden()
    for number in range(3, 11):
        run.metrics(number, {"rollout/raw_reward": 0.5, "rollout/errors/reward_KeyError": 40.0})
    page.wait_for_selector(f'{plot}[data-points="11"][data-marks="1"]')
    told = page.locator(".alarms li").all_text_contents()
    assert [each.partition(":")[0] for each in told] == ["alarm errors, rollout 9"]


def test_two_runs_are_overlaid_and_compared(
    page: "playwright.Page", served: Callable[..., str], make_run: MakeRun
) -> None:
    enter(page, served(make_run("first"), make_run("second", 5)))
    plot = '[data-metric="rollout/raw_reward"] .plot'
    page.wait_for_selector(f'{plot}[data-points="8"]')
    page.uncheck("label >> text=first")
    page.wait_for_selector(f'{plot}[data-points="5"]')
    page.fill("input[type=search]", "loss")
    page.wait_for_selector(f"{plot} >> visible=false", state="attached")
    page.click("nav >> text=Compare")
    page.wait_for_selector("text=3 and 5 rollouts. The metrics of all rollouts that both have are the same.")
    page.goto(page.url.partition("/compare")[0] + "/samples?run=second")
    page.wait_for_selector(".pages >> text=of 44")


@pytest.mark.parametrize("path", ["/", "/samples", "/sample?file=rollout_000001&row=1", "/group?group=train:e0:r2:d2"])
def test_phone_needs_no_horizontal_scrolling(
    page: "playwright.Page", served: Callable[..., str], make_run: MakeRun, path: str
) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    address = served(make_run())
    enter(page, address)
    page.goto(f"{address}{path}")
    page.wait_for_selector("h1")
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_keyboard_reaches_a_token(page: "playwright.Page", served: Callable[..., str], make_run: MakeRun) -> None:
    enter(page, served(make_run()))

    def tab_to(selector: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"Tab does not lead to {selector}")

    tab_to("nav a[href^='/samples']")
    page.keyboard.press("Enter")
    page.wait_for_selector("tbody tr")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    tab_to("input[name=text]")
    page.keyboard.type("four")
    page.keyboard.press("Enter")
    page.wait_for_selector(".pages >> text=found in")
    tab_to("tbody a.open")
    page.keyboard.press("Enter")
    page.wait_for_selector(".token")
    tab_to(".tokens")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "token 1," in text_of(page, ".detail")


def test_hostile_texts_are_inert(page: "playwright.Page", served: Callable[..., str], make_run: MakeRun) -> None:
    assert len(set(HOSTILE)) == 200
    run = make_run(rollouts=0)
    for number in range(25):  # of 8 samples each: every text is a response once
        run.hostile(number, HOSTILE[8 * number : 8 * number + 8])
    address = served(run)
    enter(page, address)
    page.wait_for_selector("text=204 samples")
    seen = set[str]()
    for offset in range(0, 200, 50):
        page.goto(f"{address}/samples?kind=rollout&offset={offset}")
        page.wait_for_selector("tbody tr")
        seen |= set(page.locator("tbody tr td:last-child").all_text_contents())
    assert seen == {text[:160] for text in HOSTILE}
    shown = set[str]()
    for number, row in product(range(25), (1, 6)):  # a sample of each group
        page.goto(f"{address}/sample?file=rollout_{number:06}&row={row}")
        page.wait_for_selector("ol li")
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        shown.add(text_of(page, ".tokens"))
        page.click("text=its group")
        page.wait_for_selector("article")
        shown |= set(page.locator("article pre").all_text_contents())
    assert shown == set(HOSTILE)
    page.goto(f"{address}/samples?text=%3Cscript%3Ewindow.owned%3D1%3C%2Fscript%3E")
    page.wait_for_selector(".pages >> text=found in 204 samples")


def test_agent_group_is_shown_as_conversations(
    page: "playwright.Page", served: Callable[..., str], make_run: MakeRun
) -> None:
    pytest.importorskip("slime_agent_openai")
    run = make_run(rollouts=0)
    run.rollout(0, rounds=2)
    address = served(run)
    enter(page, address)
    page.goto(f"{address}/sample?file=rollout_000000&row=1")
    with page.expect_popup() as opened:
        page.click("text=conversations")
    opened.value.wait_for_selector("details.execution")
    style = "getComputedStyle(document.querySelector('details.execution')).borderTopWidth"
    assert opened.value.evaluate(style) == "1px"


def test_login_returns_to_the_requested_page(
    page: "playwright.Page", served: Callable[..., str], make_run: MakeRun, chromium: "playwright.Browser"
) -> None:
    address = served(make_run())
    enter(page, address)
    page.goto(f"{address}/samples?status=failed")
    page.wait_for_selector(".pages >> text=of 7")
    context = chromium.new_context()
    other = context.new_page()
    other.goto(page.url)
    other.fill("input[name=token]", TOKEN)
    other.click("button")
    other.wait_for_selector(".pages >> text=of 7")
    context.close()


def test_report_has_the_same_views(page: "playwright.Page", make_run: MakeRun, tmp_path: Path) -> None:
    first, second = make_run("first"), make_run("second", 5)
    first.hostile(3, HOSTILE[:8])
    out = tmp_path / "both.html"
    assert run_cli(["report", str(first.folder), str(second.folder), "--html", "--out", str(out)]) == 0
    page.goto(out.as_uri())
    page.wait_for_selector('[data-metric="rollout/raw_reward"] .plot[data-points="8"] canvas')
    page.click("nav >> text=Samples")
    page.wait_for_selector(".pages >> text=of 36")
    page.select_option("select[name=status]", "failed")
    page.wait_for_selector(".pages >> text=of 9")
    page.fill("input[name=text]", "four")
    page.click("button >> text=Show")
    page.wait_for_selector(".pages >> text=found in 36 samples that were searched, to the end")
    page.click("text=all samples")
    page.wait_for_selector(".pages >> text=of 36")
    page.locator("tbody a.open").nth(3).click()
    page.wait_for_selector(".token")
    assert text_of(page, "#response pre") in HOSTILE[:4]
    page.click("text=its group")
    page.wait_for_selector("article")
    assert set(page.locator("article pre").all_text_contents()) == set(HOSTILE[:4])
    page.click("nav >> text=Compare")
    page.wait_for_selector("text=3 and 5 rollouts.")
    page.go_back()
    page.wait_for_selector("article")
