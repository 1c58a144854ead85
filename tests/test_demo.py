"""The demo, run as people run it: in a process of its own, piped, on a terminal, and interrupted."""

from __future__ import annotations

import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import pytest

from aftercommit import EventStatus
from aftercommit.demo.stage import short

DEMO = [sys.executable, "-m", "aftercommit.demo", "--fast"]

#: Far longer than a fast run, longer than the demo's own limit.
PATIENCE = 60.0

#: The lines of the summary and where the test looks for the same number.
ANSWERS = {
    "orders committed": "SELECT count(*) FROM orders",
    "events NEW": f"SELECT count(*) FROM outbox_event WHERE status = {EventStatus.NEW:d}",
    "events RETRY": f"SELECT count(*) FROM outbox_event WHERE status = {EventStatus.RETRY:d}",
    "events DONE": f"SELECT count(*) FROM outbox_event WHERE status = {EventStatus.DONE:d}",
    "events DEAD": f"SELECT count(*) FROM outbox_event WHERE status = {EventStatus.DEAD:d}",
    "handler calls": "SELECT count(*) FROM calls",
    "failed calls": "SELECT count(*) FROM calls WHERE error IS NOT NULL",
    "attempts on the events (a replay starts anew)": "SELECT sum(attempts) FROM outbox_event",
    "dead letters": "SELECT count(DISTINCT event_id) FROM dead_letters",
    "dead letters replayed": "SELECT count(*) FROM dead_letters WHERE is_replayed = 1",
    "delivered for a dead process": "SELECT count(*) FROM calls WHERE error IS NULL AND delivered_by <>"
    " (SELECT placed_by FROM orders WHERE orders.number = calls.number)",
    "delivered more than once": "SELECT coalesce(sum(extra), 0) FROM (SELECT count(*) - 1 AS extra FROM calls"
    " WHERE error IS NULL GROUP BY number)",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the demo makes its own folder."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(folder: Path) -> dict[str, str]:
    return of_a_terminal(folder)


def of_a_terminal(folder: Path) -> dict[str, str]:
    """The environment of one that can do everything."""
    cleaned = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    return cleaned | {"TMPDIR": str(folder), "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}


def piped(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*DEMO, *arguments], env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
    )


def on_a_terminal(environment: dict[str, str]) -> tuple[int, str]:
    """The exit code and everything that a terminal got."""
    process, terminal = started_on_a_terminal(environment)
    with process, terminal:
        got = read_until(terminal)
    return process.returncode, got.decode()


def started_on_a_terminal(environment: dict[str, str]) -> tuple[subprocess.Popen[bytes], BinaryIO]:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(DEMO, env=environment, stdin=theirs, stdout=theirs, stderr=theirs, process_group=0)
    os.close(theirs)
    return process, open(ours, "rb", buffering=0)


def read_until(terminal: BinaryIO, wanted: bytes | None = None) -> bytes:
    """What the terminal gets, up to these bytes or to its end."""
    got = b""
    while wanted is None or wanted not in got:
        try:
            chunk = terminal.read(65536)
        except OSError:  # how Linux says that nobody has this terminal open any more
            break
        if not chunk:
            break
        got += chunk
    return got


def questions(database: Path, *asked: str) -> list[list[tuple]]:
    with closing(sqlite3.connect(database)) as connection:
        return [connection.execute(question).fetchall() for question in asked]


# ---------------------------------------------------------------- piped


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A run, and its database."""
    run = piped(of_a_terminal(tmp_path_factory.mktemp("kept")), "--keep")
    return run, Path(re.search(r"The database is kept: (.+)", run.stdout)[1])


def test_the_summary_says_what_the_tables_say(kept: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    run, database = kept

    assert (run.returncode, run.stderr) == (0, "")
    summary = {name: int(number) for number, name in re.findall(r"^\S+ +(\d+)  (\S.*)$", run.stdout, re.MULTILINE)}
    assert summary == {name: questions(database, answer)[0][0][0] for name, answer in ANSWERS.items()}
    assert {name: summary[name] for name in ("events NEW", "events RETRY", "events DEAD")} == {
        "events NEW": 0,
        "events RETRY": 0,
        "events DEAD": 0,
    }
    assert (summary["dead letters"], summary["dead letters replayed"]) == (1, 1)
    assert summary["delivered for a dead process"] == 3
    assert summary["failed calls"] > summary["attempts on the events (a replay starts anew)"] > 0


def test_exactly_what_was_committed_was_delivered(kept: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    run, database = kept
    orders, delivered, events, hot, taken_over = questions(
        database,
        "SELECT number FROM orders ORDER BY 1",
        "SELECT DISTINCT number FROM calls WHERE error IS NULL ORDER BY 1",
        "SELECT CAST(aggregate_id AS INTEGER) FROM outbox_event ORDER BY 1",
        "SELECT min(lease_epoch) FROM outbox_event WHERE aggregate_id < '1021'",
        "SELECT min(lease_epoch) FROM outbox_event WHERE aggregate_id > '2000'",
    )
    assert orders == delivered == events
    rolled_back = int(re.search(r"the payment of order (\d+) is declined", run.stdout)[1])
    assert (rolled_back,) not in orders
    assert taken_over > hot  # a later epoch: the lease of the dead process was really taken over


def test_a_piped_run_has_plain_lines_with_timestamps_and_leaves_nothing_behind(environment, folder: Path) -> None:
    run = piped(environment)

    assert (run.returncode, run.stderr) == (0, "")
    assert "\x1b" not in run.stdout
    assert "Traceback" not in run.stdout
    assert all(re.match(r"\d\d:\d\d:\d\d\.\d{3}  \S*", line) for line in run.stdout.splitlines() if line)
    for told in ("within", "rolled back", "again in", "SIGKILL", "leased to it", "no more attempts", "OK: every"):
        assert told in run.stdout
    assert list(folder.iterdir()) == []


def test_a_delivery_that_is_missing_is_told_and_ends_with_1(environment, folder: Path, tmp_path: Path) -> None:
    fault = """
from aftercommit.demo.mailer import CallLog
recorded = CallLog.after_dispatch
def forgetful(self, event, error):
    if event.aggregate_id != "1007":
        recorded(self, event, error)
CallLog.after_dispatch = forgetful
"""
    (tmp_path / "sitecustomize.py").write_text(fault)

    paths = [str(tmp_path), *filter(None, [environment.get("PYTHONPATH")])]
    run = piped(environment | {"PYTHONPATH": os.pathsep.join(paths)})

    assert run.returncode == 1
    assert "FAILED: committed but not delivered: orders [1007]" in run.stdout
    assert "OK:" not in run.stdout
    assert list(folder.iterdir()) == []


def test_a_reader_that_goes_away_ends_the_demo_quietly(environment, folder: Path) -> None:
    process = subprocess.Popen(
        DEMO, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, process_group=0
    )
    with process:
        process.stdout.readline()
        process.stdout.close()
        complaints = process.stderr.read()

    assert (process.returncode, complaints) == (128 + signal.SIGPIPE, b"")
    assert list(folder.iterdir()) == []


# ---------------------------------------------------------------- on a terminal


def test_a_terminal_gets_a_panel_that_is_drawn_in_place(environment, folder: Path) -> None:
    code, got = on_a_terminal(environment)

    assert code == 0
    assert re.search(r"\x1b\[\d+F", got), "the panel is never drawn again"
    assert re.search(r"\x1b\[32m█+\x1b\[0m", got), "no bar of DONE in green"
    assert re.search(r"\x1b\[31m█+\x1b\[0m", got), "no bar of DEAD in red"
    assert got.count("\x1b[?25l") == got.count("\x1b[?25h") == 1, "the cursor is hidden, and given back"
    assert got.rindex("OK: every committed order") < got.rindex("\x1b[?25h")
    assert list(folder.iterdir()) == []


def test_no_color_takes_the_colours_away_and_leaves_the_panel(environment) -> None:
    code, got = on_a_terminal(environment | {"NO_COLOR": "1"})

    assert code == 0
    assert re.search(r"\x1b\[\d+F", got)
    assert not re.search(r"\x1b\[\d*m", got)


def test_a_dumb_terminal_gets_plain_lines(environment) -> None:
    code, got = on_a_terminal(environment | {"TERM": "dumb"})

    assert code == 0
    assert "\x1b" not in got


def test_a_terminal_without_the_characters_of_the_bars_gets_others(environment) -> None:
    code, got = on_a_terminal(environment | {"PYTHONIOENCODING": "ascii"})

    assert code == 0
    assert re.search(r"\x1b\[32m#+\x1b\[0m", got)


# ---------------------------------------------------------------- interrupted


@pytest.mark.parametrize("moment", ["1. Commit", "4. Crash", "leased to it"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "terminate"])
def test_an_interrupted_demo_ends_cleanly(environment, folder: Path, moment: str, number: int) -> None:
    process = subprocess.Popen(
        DEMO, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    with process:
        told = ""
        for line in process.stdout:
            told += line
            if moment in line:
                os.killpg(process.pid, number)  # to the whole group, as a terminal does
                os.killpg(process.pid, number)  # impatient
                break
        told += process.stdout.read()
        complaints = process.stderr.read()

    assert (process.returncode, complaints) == (128 + number, "")
    assert told.endswith("Stopped.\n")
    assert list(folder.iterdir()) == []
    if victim := re.search(r"process (\d+) starts", told):
        with pytest.raises(ProcessLookupError):
            os.kill(int(victim[1]), 0)


def test_ctrl_c_gives_the_terminal_back(environment, folder: Path) -> None:
    process, terminal = started_on_a_terminal(environment)
    with process, terminal:
        got = read_until(terminal, b"4. Crash")
        process.send_signal(signal.SIGINT)
        got += read_until(terminal)

    assert process.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in got
    assert got.index(b"4. Crash") < got.rindex(b"Stopped.") < got.rindex(b"\x1b[?25h")
    assert list(folder.iterdir()) == []


def test_a_terminal_that_is_closed_ends_the_demo_and_leaves_nothing_behind(environment, folder: Path) -> None:
    process, terminal = started_on_a_terminal(environment)
    with process, terminal:
        got = read_until(terminal, b"4. Crash")
        process.send_signal(signal.SIGHUP)

    assert b"4. Crash" in got
    assert process.returncode == 128 + signal.SIGHUP
    assert list(folder.iterdir()) == []


# ---------------------------------------------------------------- small things


def test_the_help_does_not_name_the_victim(environment) -> None:
    run = piped(environment, "--help")

    assert run.returncode == 0
    assert "--keep" in run.stdout
    assert "--victim" not in run.stdout


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("the hot lane is full", "the hot lane is full"),
        ("attempt 1 of EventEnvelope('A', event_id='1', key='O/7') failed", "attempt 1 of O/7 failed"),
        (
            "attempt 1 of EventEnvelope('A', event_id='1', key='O/7') failed, no more attempts: "
            "Traceback (most recent call last):\n  File …\nOSError: no",
            "attempt 1 of O/7 failed, no more attempts: OSError: no",
        ),
        ("", ""),
    ],
)
def test_log_messages_become_one_short_line(message: str, line: str) -> None:
    assert short(message) == line
