"""`aftercommit run`: it delivers, survives its children, leaves no orphans, and gives back what it holds."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread, get_ident

import pytest

from aftercommit import Outbox
from aftercommit.cli.exits import Exit
from aftercommit.cli.files import Files
from aftercommit.cli.signals import STOPPING, StopSignals
from tests.cli.kit import PATIENCE, Here, Running, program, until_noted, write_shop
from tests.databases import PostgresDatabase


@pytest.mark.parametrize("name", ["outbox", "aio"])
def test_a_process_of_its_own_delivers_until_it_is_told_to_stop(name: str, tmp_path: Path) -> None:
    journal = write_shop(tmp_path, poll_interval=0.05, drain_timeout=0.2)
    writer = _writer(f"sqlite:///{tmp_path / 'shop.db'}")
    _write(writer, 1)
    with Running("run", f"shop:{name}", folder=tmp_path) as running:
        (line,) = running.until(" delivers from ")
        assert "aftercommit 0." in line
        assert line.rstrip().endswith("to send_receipt")
        until_noted(journal, 1)
        _write(writer, 2, -1)
        until_noted(journal, 2)
        assert running.stop(signal.SIGINT if name == "aio" else signal.SIGTERM) == 0
        running.until("stopped")
    assert _held(writer) == 0
    writer.close()


@pytest.mark.parametrize("server", ["mysql", "redis"])
def test_it_delivers_from_servers_and_tells_its_state(
    server: str, request: pytest.FixtureRequest, tmp_path: Path, here: Here
) -> None:
    url = request.getfixturevalue(f"{server}_url")
    table = request.getfixturevalue("redis_table") if server == "redis" else "cli_long"
    journal = write_shop(tmp_path, url, table=table, poll_interval=0.05, drain_timeout=0.2)
    writer = _writer(url, table=table)
    with Running("run", "shop:outbox", "--http", "127.0.0.1:0", folder=tmp_path) as running:
        address = running.until("probes on http://")[0].split("http://")[1].strip()
        running.workers(1)
        _write(writer, 1)
        until_noted(journal, 1)
        assert here("healthcheck", "ready", "--http", address).code == 0
        _write(writer, -1)
        _until(lambda: _held(writer) == 1)
        assert running.stop() == 0
    assert (writer.stats().backlog.new, _held(writer)) == (1, 0), "what it held is given back"
    writer.close()


def test_what_is_due_is_delivered_and_the_program_ends(tmp_path: Path) -> None:
    journal = write_shop(tmp_path)
    writer = _writer(f"sqlite:///{tmp_path / 'shop.db'}")
    _write(writer, 1, 2)
    writer.close()
    done = program("run", "shop:aio", "--drain", folder=tmp_path)
    assert (done.code, done.out) == (0, "2 delivered, 0 retried, 0 deferred, 0 dead\n")
    assert sorted(journal.read_text().split()) == ["1", "2"]


def test_two_processes_deliver_what_a_third_writes_and_leave_nothing_behind(postgres_url: str, tmp_path: Path) -> None:
    journal = write_shop(tmp_path, postgres_url, table="cli_run", drain_timeout=0.2, poll_interval=0.1)
    writer, table = _writer(postgres_url, table="cli_run"), PostgresDatabase(postgres_url)
    with Running("run", "shop:outbox", "--processes", "2", folder=tmp_path) as running:
        first, second = running.workers(2)
        for number, child in enumerate((first, second)):  # one after the other, and each has a successor
            _write(writer, number)
            _until(lambda: not table.read("SELECT * FROM cli_run WHERE status <> 1"))
            os.kill(child, signal.SIGKILL)
            running.until("was ended by signal 9", number + 1)
            running.workers(3 + number)
        assert journal.read_text().split() == ["0", "1"]
        # Held by both when they are told to stop.
        _write(writer, *[-1] * 8)
        _until(lambda: table.read("SELECT count(*) FROM cli_run WHERE locked_by IS NOT NULL")[0][0] == 8)
        assert running.stop() == 0
        running.until_nobody_is_left()
    left = "SELECT count(*) AS rows, count(locked_by) AS held, sum(attempts) AS failed FROM cli_run WHERE status <> 1"
    assert tuple(table.read(left)[0]) == (8, 0, 0)
    table.close()
    writer.close()


def test_no_worker_outlives_its_parent(postgres_url: str, tmp_path: Path) -> None:
    write_shop(tmp_path, postgres_url, table="cli_orphans", create_schema=True)
    with Running("run", "shop:aio", "--processes", "2", folder=tmp_path) as running:
        running.workers(2)
        running.process.kill()
        running.until_nobody_is_left()
        running.until("stopped", 2)


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    write_shop(tmp_path, drain_timeout=3600, poll_interval=0.05)
    writer = _writer(f"sqlite:///{tmp_path / 'shop.db'}")
    _write(writer, -1)
    with Running("run", "shop:outbox", folder=tmp_path) as running:
        running.workers(1)
        _until(lambda: _held(writer) == 1)
        running.process.terminate()
        running.until("stopping")
        assert running.stop() == Exit.INTERRUPTED
    writer.close()


def test_a_signal_that_another_thread_takes_is_heard() -> None:
    """The main thread waits for the pipe alone: nothing interrupts it."""
    before = {number: signal.getsignal(number) for number in STOPPING}
    try:
        signals = StopSignals()
        Thread(target=lambda: signal.pthread_kill(get_ident(), signal.SIGTERM)).start()
        assert select.select(signals.readable, [], [], PATIENCE)[0]
        assert signals.have_come()
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("name", ["outbox", "aio"])
def test_a_worker_serves_its_probes_on_request(name: str, tmp_path: Path, here: Here) -> None:
    write_shop(tmp_path)
    with Running("run", f"shop:{name}", "--http", "127.0.0.1:0", folder=tmp_path) as running:
        address = running.until("probes on http://")[0].split("http://")[1].strip()
        running.workers(1)
        assert here("healthcheck", "live", "--http", address).code == 0
        assert here("healthcheck", "ready", "--http", address).code == 0
        assert running.stop() == 0
    assert here("healthcheck", "live", "--http", address).code == Exit.PROBLEM


def test_a_changed_file_starts_the_worker_again(tmp_path: Path) -> None:
    journal = write_shop(tmp_path, poll_interval=0.05)
    writer = _writer(f"sqlite:///{tmp_path / 'shop.db'}")
    source = (tmp_path / "shop.py").read_text()
    with Running("run", "shop:outbox", "--reload", folder=tmp_path) as running:
        running.workers(1)
        (tmp_path / "shop.py").write_text("1 / 0  # saved too early")
        running.until("a changed file starts it again")
        (tmp_path / "shop.py").write_text(source.replace("print(event.total", "print(event.total + 100"))
        running.workers(2)
        _write(writer, 1)
        until_noted(journal, 101)
        assert running.stop() == 0
    writer.close()


def test_workers_that_cannot_start_are_not_tried_for_ever(tmp_path: Path) -> None:
    done = program("run", "shop:outbox", "--processes", "2", folder=tmp_path)
    assert done.code == Exit.NO_START
    assert "there is no module 'shop'" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["run", "shop:outbox", "--drain", "--reload"], Exit.USAGE, "--drain ends by itself"),
        (["run", "--url", "sqlite:///shop.db"], Exit.NO_START, "has no handlers"),
        (["run", "writer:outbox"], Exit.NO_START, "writer-only"),
        (["run", "away:outbox"], Exit.UNREACHABLE, "[AC034]"),
        (["run"], Exit.NO_START, "no outbox was named"),
    ],
)
def test_what_can_deliver_nothing_is_refused(
    arguments: list[str], code: Exit, said: str, here: Here, tmp_path: Path
) -> None:
    (tmp_path / "writer.py").write_text(
        "from aftercommit import Outbox; outbox = Outbox.writer_only('sqlite:///shop.db')"
    )
    (tmp_path / "away.py").write_text(
        "from aftercommit import Outbox; outbox = Outbox('postgresql://user:canary@127.0.0.1:9/shop')\n"
        "outbox.register('A', print)"
    )
    done = here(*arguments)
    assert done.code == code, done.err
    assert said in done.err
    assert "canary" not in done.err


def test_files_of_the_program_are_watched_and_those_of_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "pyvenv.cfg").touch()
    (tmp_path / ".hidden").mkdir()
    files = Files(tmp_path)
    for other in ("venv/a.py", ".hidden/b.py", "notes.txt"):
        (tmp_path / other).touch()
    assert files.changed() is None
    (tmp_path / "aftercommit.toml").touch()
    assert files.changed() == tmp_path / "aftercommit.toml"
    assert files.changed() is None


def _writer(url: str, **options: object) -> Outbox:
    """Somebody else, who delivers nothing."""
    outbox = Outbox.writer_only(url, **options)
    outbox.create_schema()
    return outbox


def _write(writer: Outbox, *totals: int) -> None:
    with writer.transaction():
        for total in totals:
            writer.write("OrderPlaced", {"total": total})


def _held(writer: Outbox) -> int:
    return writer.stats().backlog.leased


def _until(look: Callable[[], bool]) -> None:
    over = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < over
        time.sleep(0.02)
