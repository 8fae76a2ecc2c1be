"""ChatTemplate: what templates may cost, the date that they write, the arguments that they take."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from unittest.mock import patch

import pytest
from tokenizers import Tokenizer, models

from slime_core.data import (
    ChatTemplate,
    HfTokenizer,
    PromptTable,
    check_template_kwargs,
    mixture_source,
    prompt_source,
    row_source,
)
from slime_core.data.settings import MixtureMember, MixtureSettings
from slime_core.errors import ConfigError, DataError, ModelError
from slime_core.processes.forked import Forked
from slime_core.roles import DataSourceSetup, PromptFile, RowFormat
from slime_core.sample import Message
from slime_train.dialogs import DialogReader
from tests.tables import table

HELLO: Sequence[Message] = ({"role": "user", "content": "What is 2+3?"},)
LOOPS = "{%% for a in range(99999) %%}{%% for b in range(99999) %%}%s{%% endfor %%}{%% endfor %%}"
TWICE = "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"
DOUBLES = "{%% set a = namespace(b=%s) %%}{%% for c in range(99) %%}{%% set a.b = %s %%}{%% endfor %%}"
MEMORY = "more than 512 MiB|not done after"  # a busy machine meets the other limit first
SLOW = "not done after 0.7 s"
HOSTILE = {
    "{{ messages[0].content.ljust(2000000000) }}": MEMORY,
    "{{ ('x ' * 100000) | wordwrap(1, wrapstring='y' * 1000000) }}": MEMORY,
    "{{ range(99999) | join('x' * 99999) }}": MEMORY,
    "{{ 'x' * 10 ** 12 }}": MEMORY,
    DOUBLES % ("[1]", "a.b + a.b"): MEMORY,
    "{{ messages[0].content * 9000000 }}": "more than 33554432 bytes|not done after",
    "{{ raise_exception('x' * 9999999) }}": "refuses the messages: xxx",
    LOOPS % "{% set c = a %}": SLOW,
    "{% set a = namespace(b=9) %}{% for c in range(9) %}{% set a.b = a.b ** 9 %}{% endfor %}": SLOW,
    TWICE: SLOW,
    "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}": "RecursionError",
    "x" * 2_000_000: "more than 1048576 characters",
    "{% if 1 %}" * 500 + "{% endif %}" * 500: "nested too deeply",
    "{{ " + "(" * 99_999 + "1" + ")" * 99_999 + " }}": "nested too deeply",
    "{{ 1/0 }}": "fails with the messages: ZeroDivisionError",
    "{{ messages[9].content }}": "refuses the messages: ",
    "one\n{% if %}": "is broken in line 2",
}
RENDER_ALL = """
import json, resource, sys
from slime_core.data import chat_template
from slime_core.errors import DataError, ModelError
from slime_core.processes.server import shared_server
chat_template.LIMIT_S, found = 0.7, []
for text in json.load(sys.stdin):
    try:
        made = chat_template.ChatTemplate({"default": text}, {}, "m").render([{"role": "user", "content": "What?"}])
        found.append("made")
    except (DataError, ModelError) as error:
        found.append(str(error))
shared_server([chat_template.PRELOAD, chat_template.WORKER]).close()
own = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # ru_maxrss begins at the parent's
print(json.dumps([found, int(own.split()[1]), resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss]))
"""


def test_a_hostile_template_is_refused_in_bounded_memory_and_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", RENDER_ALL], input=json.dumps([*HOSTILE]), capture_output=True, text=True, check=True
    )
    found, driver, worker = json.loads(done.stdout)
    wrong = {
        text[:60]: got for (text, said), got in zip(HOSTILE.items(), found, strict=True) if not re.search(said, got)
    }
    assert not wrong
    assert worker < 1 << 20, "KiB"
    assert driver < 200 << 10, "KiB"


def test_a_template_that_was_stopped_often_is_not_tried_again() -> None:
    template = ChatTemplate({"default": "{{ messages[0].content * 10 ** 9 }}"}, {}, "m")
    for _ in range(3):
        with pytest.raises(DataError, match=MEMORY):
            template.render(HELLO)
    with pytest.raises(ModelError, match="stopped 3 times in a row"):
        template.render(HELLO)


def test_rows_that_are_read_together_are_read_as_one_by_one() -> None:
    """Some rows need several texts, some none; one text passes a limit, one is refused, and one is wanted twice."""
    template = ChatTemplate(
        {"default": "{{ raise_exception('no') if messages[0].content == 4 }}{{ 'x' * messages[0].content }}"}, {}, "m"
    )
    rows = [[1], [], [2 * 10**9], [3, 1, 2], [1, 4, 2 * 10**9], [2], *([each] for each in range(5, 150))]

    def read(row: list[int]) -> list[str]:
        try:
            return [template.render([{"role": "user", "content": count}]) for count in row]
        except DataError as error:
            return [str(error)]

    with patch.object(Forked, "call_blocking", autospec=True, side_effect=Forked.call_blocking) as exchange:
        together = [*template.read_rows(iter(rows), read)]
    assert exchange.call_count < 60, "requests, of 150 rows"
    assert together == [(row, read(row)) for row in rows]
    assert [together[0][1], together[5][1]] == [["x"], ["xx"]]
    assert re.search(MEMORY, together[2][1][0])
    assert "refuses the messages: no" in together[4][1][0]


@table(
    "template, expected",
    [
        ("{{ strftime_now('%d %b %Y %H:%M') }}", "07 Feb 2031 00:00"),
        ("{{ date_string if date_string is defined else strftime_now('%Y') }}", "26 Jul 2024"),
        ("{% for _ in range(30) %}{{ [0, 1, 2, 3] | random }}{% endfor %}", None),
        ("{{ lipsum(n=1) }}", None),
    ],
)
def test_a_text_is_the_same_in_another_process_and_on_another_day(template: str, expected: str | None) -> None:
    kwargs = {"date_string": "26 Jul 2024"}
    first, second = (ChatTemplate({"default": template}, {}, "m", date(2031, 2, 7)) for _ in range(2))
    texts = {each.render(HELLO, None, kwargs) for each in (first, first, second)}
    assert len(texts) == 1
    assert expected is None or texts == {expected}


READS = {
    "{{ messages }}{% if not a is defined %}{% set a = 1 %}{% endif %}{{ a }}": {"a"},
    "{% macro m(b) %}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}": {"c"},
    "{% set d = 1 %}{{ d }}{% for e in tools %}{{ e }}{{ loop.index }}{% endfor %}": set(),
    "{% generation %}{{ f }}{% endgeneration %}{{ raise_exception(g) if g is defined }}": {"f", "g"},
}


def test_the_arguments_of_templates_are_what_they_read() -> None:
    found = {text: set(ChatTemplate({"default": text}, {}, "m").arguments) for text in READS}
    assert found == READS
    both = ChatTemplate({"default": "{{ h }}", "tool_use": "{{ i }}"}, {}, "m")
    assert both.arguments == {"h", "i"}


def test_an_argument_that_no_template_reads_is_refused_with_the_one_that_was_meant() -> None:
    template = ChatTemplate({"default": "{{ enable_thinking }}{{ bos_token }}"}, {"bos_token": "<s>"}, "m")
    model = HfTokenizer(Tokenizer(models.BPE()), frozenset({1}), template, "m")

    def check(*names: str) -> None:
        kwargs = dict.fromkeys(names, False)
        check_template_kwargs(RowFormat(apply_chat_template=True, apply_chat_template_kwargs=kwargs), model)

    check("enable_thinking", "bos_token", "add_generation_prompt")
    for name, said in (("enable_thinkng", "Did you mean 'enable_thinking'"), ("tools", "It reads: enable_thinking")):
        with pytest.raises(ConfigError, match=said):
            check(name)


def test_arguments_cannot_replace_what_a_row_says(model_dir: Path) -> None:
    template = ChatTemplate({"default": "{{ messages[0].content }}{{ documents }}"}, {}, "m")
    assert template.render(HELLO, None, {"messages": [], "documents": 7}) == "What is 2+3?7"


def test_every_reader_refuses_arguments_that_the_template_does_not_read(tokenizer: HfTokenizer, tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text('{"input": "a"}\n')
    form = RowFormat(apply_chat_template=True, apply_chat_template_kwargs={"enable_thinkng": False})
    file, unrendered = PromptFile.of(tmp_path / "d.jsonl", "d", form), replace(form, apply_chat_template=False)
    setup = DataSourceSetup(
        refuse, 1, prompts=[file], tokenizer=tokenizer, n_samples_per_prompt=1, shuffle=False, row_format=form
    )
    member = MixtureMember(path=str(tmp_path / "d.jsonl"), apply_chat_template=True)
    readers: dict[str, Callable[[], object]] = {
        "evaluation": lambda: PromptTable([file], tokenizer),
        "run": lambda: prompt_source(setup),
        "mixture": lambda: mixture_source(
            MixtureSettings(sources={"a": member}), replace(setup, row_format=unrendered)
        ),
        "rows": lambda: row_source([{"input": "a"}], "rows", setup),
        "sft": lambda: DialogReader(tokenizer, form).read([tmp_path / "d.jsonl"]),
    }
    taken = []
    for name, read in readers.items():
        try:
            read()
            taken.append(name)
        except ConfigError as error:
            assert "takes no argument" in str(error)  # noqa: PT017  # of each in the table
    assert not taken


def refuse(role: str, name: str, **settings: object) -> object:
    raise AssertionError(f"{role} {name} is not needed")
