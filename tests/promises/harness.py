"""Real processes on one database: started, told what to do, stopped, killed, and looked at from outside."""

from __future__ import annotations

import json
import os
import select
import signal
from pathlib import Path
from typing import Any
from uuid import uuid4

from aftercommit.runtime.threads import run
from tests.promises.faults import VARIABLE
from tests.promises.journal import Journal
from tests.promises.listener import EVENT, Listener
from tests.promises.nursery import Nursery
from tests.promises.places import world_of
from tests.promises.waiting import until
from tests.support import PATIENCE, World

#: Leases that run out soon, so that another process takes over within the test, and a poller that looks often.
#: It is the test that kills: no event is to blame, however often it is the one that runs.
QUICK = {"lock_timeout": "500ms", "poll_interval": "50ms", "max_abandoned": 100}

#: Leases that no test outlives: what is taken over here was given back.
LASTING = {"lock_timeout": "60s", "poll_interval": "20ms"}


class Process:
    """One process of a test. Its stderr is kept, to be shown when something goes wrong."""

    def __init__(self, nursery: Nursery, module: str, argument: object, errors: Path, **birth: Any) -> None:
        self._nursery = nursery
        self._errors = errors
        self._unread = b""
        stdin, self._orders = os.pipe()
        self._answers, stdout = os.pipe()
        stderr = os.open(errors, os.O_WRONLY | os.O_CREAT)
        descriptors = [stdin, stdout, stderr]
        self.pid = nursery.bear(module, argument, descriptors, **birth)
        for each in descriptors:
            os.close(each)

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def send(self, do: str, **arguments: Any) -> None:
        """Tell it to do something; the answer may be asked for later."""
        try:
            os.write(self._orders, json.dumps({"do": do, **arguments}).encode() + b"\n")
        except BrokenPipeError:
            raise AssertionError(f"ended with {self.wait()} before {do}\n{self.errors}") from None

    def answer(self, timeout: float = PATIENCE) -> Any:
        """What it has to say to the oldest unanswered order."""
        until(self._has_answered, what=f"an answer; {self._errors}", timeout=timeout)
        line, self._unread = self._unread.split(b"\n", 1)
        return json.loads(line)["answer"]

    def _has_answered(self) -> bool:
        while b"\n" not in self._unread:
            if not select.select([self._answers], [], [], 0.01)[0]:
                return False
            chunk = os.read(self._answers, 65536)
            assert chunk, f"ended with {self.wait()} instead of answering\n{self.errors}"
            self._unread += chunk
        return True

    def tell(self, do: str, **arguments: Any) -> Any:
        self.send(do, **arguments)
        return self.answer()

    def signal(self, number: int) -> None:
        """Only to this process, and only while it lives."""
        self._nursery.signal(self.pid, number)

    def wait(self, timeout: float = PATIENCE) -> int:
        """How it ended; negative for a signal."""
        until(lambda: self.has_ended, what=f"the end of {self.pid}", timeout=timeout)
        status = self._nursery.status(self.pid)
        assert status is not None
        return status

    @property
    def has_ended(self) -> bool:
        return self._nursery.status(self.pid) is not None

    def finish(self, timeout: float = PATIENCE) -> None:
        """End it in order: no more orders, then close()."""
        os.close(self._orders)
        self._orders = -1
        assert self.wait(timeout) == 0, self.errors

    def put_away(self) -> None:
        """Whatever the test left of it."""
        if not self.has_ended:
            self.signal(signal.SIGKILL)
            self.wait()
        os.close(self._answers)
        if self._orders >= 0:
            os.close(self._orders)


class Fleet:
    """The processes of one test, their database and their journal."""

    def __init__(self, nursery: Nursery, folder: Path, database: str = "sqlite", url: str | None = None) -> None:
        self._nursery = nursery
        self.folder = folder
        self.database = database
        self.url = url
        name = f"aftercommit_{uuid4().hex[:12]}" if database == "redis" else "outbox_event"
        if database == "redis":
            self.url = url = f"{url}?client_name={name}"  # who is connected is known by it
        self.table = World("threads", folder, database, url, name)
        self.journal = Journal(folder / "journal")
        self.gate = folder / "gate"
        self._processes: list[Process] = []

    def worker(
        self,
        runtime: str = "threads",
        *,
        handler: str | None = "sync",
        crash_at: str | None = None,
        gated: bool = False,
        environment: dict[str, str] | None = None,
        is_fresh: bool = False,
        **options: Any,
    ) -> Process:
        """A worker that waits for orders. With `gated` its handlers wait where an event tells them to."""
        spec = {
            **self.place(runtime),
            "handler": handler,
            "gate": str(self.gate) if gated else None,
            "options": {**QUICK, **options},
        }
        variables = {**(environment or {}), **({VARIABLE: crash_at} if crash_at else {})}
        return self.process("worker", spec, environment=variables, is_fresh=is_fresh)

    def process(self, module: str, argument: object, **birth: Any) -> Process:
        """One that runs `main(argument)` of a module next to this one."""
        errors = self.folder / f"{module}-{len(self._processes)}.err"
        process = Process(self._nursery, f"{__package__}.{module}", argument, errors, **{"environment": {}, **birth})
        self._processes.append(process)
        return process

    def place(self, runtime: str) -> dict[str, str | None]:
        """Where a process works; `asyncpg` is asyncio over that driver."""
        url = self.url
        if runtime == "asyncpg" and url is not None:
            url = url.replace("postgresql://", "postgresql+asyncpg://")
        world = "threads" if runtime == "threads" else "asyncio"
        place = {"folder": str(self.folder), "world": world, "database": self.database, "url": url}
        return {**place, "table": self.table.table}

    def delivered_by_this_process(self, runtime: str, **options: Any) -> None:
        """The test's own process takes part until all rows are done; for tests that start enough others."""
        world = world_of(self.place(runtime))

        async def scenario() -> None:
            outbox = world.outbox(**{**QUICK, **options})
            outbox.register(EVENT, Listener(self.journal).sync)
            async with outbox:
                await world.until_settled(len(self.statuses()))

        world.run(scenario)
        world.somebody.close()

    def stop(self, process: Process) -> None:
        """It stands still from now on, and not in the middle of a transaction: others would wait for that as long."""

        def has_stopped() -> bool:
            process.signal(signal.SIGSTOP)
            if not self.table.somebody.is_locked():
                return True
            process.signal(signal.SIGCONT)
            return False

        until(has_stopped, what=f"{process.pid} stands still outside any transaction")

    def look_anew(self) -> None:
        """On a new connection: the server was away."""
        self.table.somebody.close()
        del self.table.somebody

    def open_gate(self) -> None:
        self.gate.touch()

    def end_processes(self) -> None:
        while self._processes:
            self._processes.pop().put_away()

    def close(self) -> None:
        self.end_processes()
        self.journal.close()
        self.table.somebody.close()

    # -------------------------------------------------------- what is true

    def crashed(self, process: Process, point: str) -> None:
        """The fault fired: the process was at the point, and nothing but signal 9 ended it."""
        assert process.wait() == -signal.SIGKILL, process.errors
        assert (process.pid, point.partition(":")[0]) in {(line.pid, line.what) for line in self.journal.lines("crash")}

    def rows(self, *arguments: Any) -> list[Any]:
        return self.table.rows(*arguments)

    def statuses(self) -> dict[str, int]:
        return {row["event_id"]: row["status"] for row in self.rows()}

    def ended(self, status: int = 1) -> set[str]:
        return {event_id for event_id, found in self.statuses().items() if found == status}

    def until_settled(self, count: int, timeout: float = PATIENCE) -> None:
        run(self.table.until_settled(count, timeout=timeout))

    def until_effects(self, count: int) -> None:
        until(lambda: len(self.journal.ids("effect")) >= count, what=f"{count} effects")

    def until_entered(self, count: int) -> None:
        until(lambda: len(self.journal.ids("enter")) >= count, what=f"{count} handlers that run")

    def all_delivered(self) -> set[str]:
        """The checker: what was committed is what was delivered, and nothing hangs in between. Gives all ids."""
        committed = set(self.statuses())
        reported = self.journal.ids("ok") - self.journal.ids("purged")
        assert reported <= committed, "a commit was reported, and its row is not there"
        assert not self.journal.ids("fail") & committed, "a rolled back event is in the table"
        assert self.journal.ids("effect") == committed
        for row in self.rows():
            assert (row["status"], row["locked_by"], row["abandoned"]) == (1, None, 0), dict(row)
            assert row["done_at"] is not None
        if self.database == "sqlite":
            assert self.rows("PRAGMA integrity_check")[0][0] == "ok"
        return committed
