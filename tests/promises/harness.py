"""Real processes on one SQLite file: started, told what to do, stopped, killed, and looked at from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from aftercommit.runtime.threads import run
from tests.promises.faults import VARIABLE
from tests.promises.journal import Journal
from tests.promises.listener import EVENT, Listener
from tests.support import PATIENCE, World

T = TypeVar("T")

ROOT = Path(__file__).parents[2]

#: Leases that run out soon, so that another process takes over within the test, and a poller that looks often.
QUICK = {"lock_timeout": "500ms", "poll_interval": "50ms"}

#: Leases that no test outlives: what is taken over here was given back.
LASTING = {"lock_timeout": "60s", "poll_interval": "20ms"}


def until(look: Callable[[], T], *, what: str, timeout: float = PATIENCE) -> T:
    """Look again and again until something is true: other processes send no signals."""
    watch, limit = threading.Event(), time.monotonic() + timeout
    while not (value := look()):
        assert time.monotonic() < limit, f"never came: {what}"
        watch.wait(0.005)
    return value


def pause(seconds: float) -> None:
    """Let time pass where the moment itself is what is tested."""
    threading.Event().wait(seconds)


def _compiled_once(folder: Path) -> dict[str, str]:
    """Many processes are started, and most of a start would be the compiling of what the last one compiled."""
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


class Process:
    """One process of a test. Its stderr is kept, to be shown when something goes wrong."""

    def __init__(self, module: str, argument: object, errors: Path, **environment: str) -> None:
        self._errors = errors
        self._unread = b""
        with errors.open("wb") as stderr:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(argument)],
                cwd=ROOT,
                env={**os.environ, **_compiled_once(errors.parent.parent), **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )
        self.pid = self._popen.pid

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def send(self, do: str, **arguments: Any) -> None:
        """Tell it to do something; the answer may be asked for later."""
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
        self._popen.stdin.flush()

    def answer(self, timeout: float = PATIENCE) -> Any:
        """What it has to say to the oldest unanswered order."""
        assert self._popen.stdout is not None
        pipe, limit = self._popen.stdout.fileno(), time.monotonic() + timeout
        while b"\n" not in self._unread:
            rest = limit - time.monotonic()
            assert select.select([pipe], [], [], max(0.0, rest))[0], f"no answer in {timeout} s\n{self.errors}"
            chunk = os.read(pipe, 65536)
            assert chunk, f"ended with {self._popen.wait(PATIENCE)} instead of answering\n{self.errors}"
            self._unread += chunk
        line, self._unread = self._unread.split(b"\n", 1)
        return json.loads(line)["answer"]

    def tell(self, do: str, **arguments: Any) -> Any:
        self.send(do, **arguments)
        return self.answer()

    def signal(self, number: int) -> None:
        """Only to this process, and only while it is ours to signal."""
        assert self._popen.poll() is None, f"has ended with {self._popen.returncode}\n{self.errors}"
        self._popen.send_signal(number)
        if number == signal.SIGSTOP:
            _, status = os.waitpid(self.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), f"did not stop\n{self.errors}"

    def wait(self, timeout: float = PATIENCE) -> int:
        """How it ended; negative for a signal."""
        return self._popen.wait(timeout)

    @property
    def has_ended(self) -> bool:
        return self._popen.poll() is not None

    def finish(self, timeout: float = PATIENCE) -> None:
        """End it in order: no more orders, then close()."""
        assert self._popen.stdin is not None
        self._popen.stdin.close()
        assert self.wait(timeout) == 0, self.errors

    def put_away(self) -> None:
        """Whatever the test left of it."""
        if self._popen.poll() is None:
            self._popen.kill()
            self._popen.wait()
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Fleet:
    """The processes of one test, their database and their journal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = World("threads", folder)
        self.journal = Journal(folder / "journal")
        self.gate = folder / "gate"
        self._processes: list[Process] = []

    def worker(
        self,
        world: str = "threads",
        *,
        handler: str | None = "sync",
        crash_at: str | None = None,
        gated: bool = False,
        environment: dict[str, str] | None = None,
        **options: Any,
    ) -> Process:
        """A worker that waits for orders. With `gated` its handlers wait where an event tells them to."""
        spec = {
            "folder": str(self.folder),
            "world": world,
            "handler": handler,
            "gate": str(self.gate) if gated else None,
            "options": {**QUICK, **options},
        }
        extra = {VARIABLE: crash_at} if crash_at else {}
        return self.process("tests.promises.worker", spec, **extra, **(environment or {}))

    def process(self, module: str, argument: object, **environment: str) -> Process:
        errors = self.folder / f"{module.rpartition('.')[2]}-{len(self._processes)}.err"
        process = Process(module, argument, errors, **environment)
        self._processes.append(process)
        return process

    def delivered_by_this_process(self, runtime: str, **options: Any) -> None:
        """The test's own process takes part until all rows are done; for tests that start enough others."""
        world = World(runtime, self.folder)

        async def scenario() -> None:
            outbox = world.outbox(**{**QUICK, **options})
            outbox.register(EVENT, Listener(self.journal).sync)
            async with outbox:
                await world.until_settled(len(self.statuses()))

        world.run(scenario)

    def open_gate(self) -> None:
        self.gate.touch()

    def close(self) -> None:
        for process in self._processes:
            process.put_away()
        self.journal.close()

    # -------------------------------------------------------- what is true

    def crashed(self, process: Process, point: str) -> None:
        """The fault fired: the process was at the point, and nothing but signal 9 ended it."""
        assert process.wait() == -signal.SIGKILL, process.errors
        assert (process.pid, point.partition(":")[0]) in {(line.pid, line.what) for line in self.journal.lines("crash")}

    def rows(self, *arguments: Any) -> list[sqlite3.Row]:
        return self.table.rows(*arguments)

    def statuses(self) -> dict[str, int]:
        return {row["event_id"]: row["status"] for row in self.rows()}

    def ended(self, status: int = 1) -> set[str]:
        return {event_id for event_id, found in self.statuses().items() if found == status}

    def until_settled(self, count: int, status: int = 1) -> None:
        run(self.table.until_settled(count, status))

    def until_effects(self, count: int) -> None:
        until(lambda: len(self.journal.ids("effect")) >= count, what=f"{count} effects")

    def until_entered(self, count: int) -> None:
        until(lambda: len(self.journal.ids("enter")) >= count, what=f"{count} handlers that run")

    def all_delivered(self) -> set[str]:
        """The checker: what was committed is what was delivered, and nothing hangs in between. Gives all ids."""
        committed = set(self.statuses())
        assert self.journal.ids("ok") <= committed, "a commit was reported, and its row is not there"
        assert not self.journal.ids("fail") & committed, "a rolled back event is in the table"
        assert self.journal.ids("effect") == committed
        for row in self.rows():
            assert (row["status"], row["locked_by"], row["abandoned"]) == (1, None, 0), dict(row)
            assert row["done_at"] is not None
        assert self.rows("PRAGMA integrity_check")[0][0] == "ok"
        return committed
