"""Progress of `slime generate --out`: one line on a terminal, a line now and then in a log."""

import io

from slime_local.count_shown import EVERY_S, CountShown


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_log_has_a_line_every_so_often_and_none_at_the_end() -> None:
    log, now = io.StringIO(), 0.0
    progress = CountShown(40, log, lambda: now)
    for done in range(1, 41):
        now += EVERY_S / 10
        progress.show(done)
    assert log.getvalue().splitlines() == ["10 of 40", "20 of 40", "30 of 40"]


def test_a_terminal_has_one_line() -> None:
    shown = Terminal()
    progress = CountShown(3, shown, lambda: 0.0)
    for done in (1, 2, 3):
        progress.show(done)
    progress.end()
    assert shown.getvalue() == "\r1 of 3\r2 of 3\r3 of 3\n"
