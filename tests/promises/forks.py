"""What programs that fork are made of: an outbox, a journal, and children that say what came of them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
import traceback
from collections.abc import Callable
from typing import Any

from aftercommit import EventEnvelope, Outbox
from aftercommit.runtime.threads import run
from aftercommit.stores.sqlite import target, write_lock
from tests.promises.journal import Journal
from tests.promises.listener import EVENT, Listener
from tests.support import World

#: A child that says nothing for this long hangs.
CHILD_PATIENCE = 15.0

#: Nothing expires, and the poller looks only when it is woken: a parent at rest stays at rest.
CALM = {"lock_timeout": "60s", "poll_interval": "1h"}

#: The number of the session that asks.
SESSION = {"postgres": "SELECT pg_backend_pid()", "mariadb": "SELECT connection_id()"}


class Program:
    """What every scenario uses: a database, a journal, and a way to run something in a child."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.folder = world.folder
        self.journal = Journal(self.folder / "journal")
        self.gate = self.folder / "gate"

    def outbox(self, kind: Any = Outbox, **options: Any) -> Any:
        own = {"table": self.world.table, "delete_completed": False} if self.world.database == "redis" else {}
        outbox = kind(self.world.url, **{**CALM, **own, "create_schema": True, **options})
        outbox.register(EVENT, Listener(self.journal, self.gate).sync)
        return outbox

    def event(self, number: int = 0, *, key: str | None = None, **order: Any) -> EventEnvelope:
        return EventEnvelope(EVENT, payload_json=json.dumps({"n": number, **order}), key=key)

    def write(self, outbox: Outbox, count: int = 1, *, key: str | None = None) -> list[str]:
        ids = []
        for number in range(count):
            event = self.event(number, key=key)
            with outbox.transaction():
                outbox.write(event)
            self.journal.say("ok", event.event_id)
            ids.append(event.event_id)
        return ids

    def hurry(self, busy_timeout: float) -> None:
        """A process that is locked out says so soon. Only where that is the question: SQLite's waiting is not fair."""
        write_lock.BUSY_TIMEOUT = target.BUSY_TIMEOUT = busy_timeout

    def connections(self, outbox: Outbox) -> list[int]:
        """What this process has opened: connections in its memory, or the server's numbers of their sessions."""
        if self.world.database == "sqlite":
            executor = outbox._store.executor
            return [id(each.raw) for pool in (executor._own, executor._lent) for each in pool._idle]
        if self.world.database == "redis":
            return [run(outbox._store.server.link.call((b"CLIENT", b"ID")))[0]]
        with outbox.transaction() as tx:
            return [row[0] for row in tx.execute(SESSION[self.world.database])]

    def until(self, look: Callable[[], Any]) -> None:
        watch = threading.Event()
        for _ in range(int(CHILD_PATIENCE / 0.005)):
            if look():
                return
            watch.wait(0.005)
        raise AssertionError("never came")

    def until_effects(self, ids: list[str]) -> None:
        self.until(lambda: self.journal.ids("effect") >= set(ids))

    def at_rest(self, outbox: Outbox) -> None:
        """No thread of the outbox is in a transaction, nor will be."""
        self.until(lambda: outbox._engine.settler.unsettled == 0)
        outbox.poll()


class Child:
    """A forked process that runs one function, says what it returned or raised, and ends without clean-up."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._pipe, there = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(there)
            return
        with contextlib.suppress(BaseException):
            os.write(there, json.dumps(_said(work)).encode())
        os._exit(0)

    def said(self, patience: float = CHILD_PATIENCE) -> Any:
        try:
            if not select.select([self._pipe], [], [], patience)[0]:
                os.kill(self.pid, signal.SIGKILL)
                return {"hangs": True}
            return json.loads(os.read(self._pipe, 65536) or b"null")
        finally:
            os.waitpid(self.pid, 0)
            os.close(self._pipe)


def forking_begins() -> threading.Event:
    """Set when this process is about to fork; the last that asks to be told is told first, before the library."""
    begins = threading.Event()
    os.register_at_fork(before=begins.set)
    return begins


def _said(work: Callable[[], Any]) -> Any:
    try:
        return {"returned": work()}
    except BaseException as error:
        return {"raised": type(error).__name__, "trace": traceback.format_exc()}


class ForkingHandler:
    """Forks where an event tells it to. The child returns from the handler, raises or exits, as the event says."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.children: dict[str, int] = {}

    def __call__(self, event: EventEnvelope) -> None:
        end = json.loads(event.payload_json).get("ends")
        if end is not None:
            pid = os.fork()
            if not pid:
                if end == "exits":
                    raise SystemExit(3)
                if end == "raises":
                    raise RuntimeError("in the child")
                return
            self.children[end] = pid
        self._journal.say("effect", event.event_id)

    async def coloured(self, event: EventEnvelope) -> None:
        self(event)

    def ends(self) -> dict[str, int | None]:
        """How the children have ended; None for one that lives on, and is killed."""
        return {end: _ended(pid) for end, pid in self.children.items()}


def _ended(pid: int) -> int | None:
    watch = threading.Event()
    for _ in range(400):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        watch.wait(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None
