"""Programs that fork. One of them is run, and what came of it printed.

They run in a process of their own, because a fork copies everything, a test runner included.
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  (its hooks for forks have to be there before the first fork)
import contextlib
import json
import multiprocessing
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from typing import Any

import sqlalchemy

from aftercommit import AsyncOutbox, EventEnvelope, Outbox
from aftercommit.events import ids
from aftercommit.stores.sql.connections import abandoned
from tests.promises.forks import CALM, CHILD_PATIENCE, Child, ForkingHandler, Program, forking_begins
from tests.promises.listener import EVENT, Listener
from tests.promises.places import world_of
from tests.promises.sessions import sessions


def started_before_the_fork(program: Program) -> dict[str, Any]:
    """The parent delivers; the child writes and delivers too; the parent goes on."""
    outbox = program.outbox()
    with outbox:
        program.until_effects(program.write(outbox, 5))
        program.at_rest(outbox)
        parent = facts(program, outbox)
        child = Child(lambda: uses_it(program, outbox)).said()
        after = facts(program, outbox)
        program.until_effects(program.write(outbox, 5))
    return {"parent": parent, "child": child, "after": after}


def uses_it(program: Program, outbox: Outbox) -> dict[str, Any]:
    program.until_effects(program.write(outbox, 5))
    program.at_rest(outbox)
    found = facts(program, outbox)
    outbox.close()
    return found


def ordered_before_the_fork(program: Program) -> dict[str, Any]:
    """An instance of a fleet forks: the child is another one, and takes its share until it leaves."""
    outbox = program.outbox(
        ordered=True,
        owner_id="shop",
        poll_interval="50ms",
        heartbeat_interval="100ms",
        rebalance_interval="100ms",
        stale_timeout="60s",
    )
    outbox.create_schema()  # the table is ordered from here on
    with outbox:
        program.until_effects(program.write(outbox, 5, key="a"))
        program.until(lambda: shares(outbox) == [256])
        child = Child(lambda: shares_it(program, outbox)).said()
        program.until(lambda: shares(outbox) == [256])
        program.until_effects(program.write(outbox, 5, key="a"))
        return {"owner": outbox._engine.owner, "child": child}


def shares_it(program: Program, outbox: Outbox) -> dict[str, Any]:
    program.until_effects(program.write(outbox, 5, key="a"))
    program.until(lambda: shares(outbox) == [128, 128])
    members = [(member.pid, member.id) for member in outbox.cluster().members]
    found = {"owner": outbox._engine.owner, "members": members, "pids": [os.getppid(), os.getpid()]}
    outbox.close()
    return found


def shares(outbox: Outbox) -> list[int]:
    return [len(member.partitions) for member in outbox.cluster().members]


def facts(program: Program, outbox: Outbox) -> dict[str, Any]:
    """What a process has for itself."""
    return {
        "pid": os.getpid(),
        "owner": outbox._engine.owner,
        "connections": program.connections(outbox),
        "threads": sorted(thread.name for thread in threading.enumerate() if thread.name.startswith("aftercommit")),
    }


def memory_at_the_fork(program: Program) -> dict[str, Any]:
    """Events wait in the parent's memory when it forks; the child has a copy of that memory."""
    outbox = program.outbox(worker_count=1)
    with outbox:
        waiting = program.event(0, waits=True)
        with outbox.transaction():
            outbox.write(waiting)
        program.until(lambda: waiting.event_id in program.journal.ids("enter"))
        queued = program.write(outbox, 20)
        program.at_rest(outbox)
        child = Child(lambda: uses_it(program, outbox)).said()
        early = sorted(program.journal.ids("effect") & set(queued))
        program.gate.touch()
        program.until_effects([waiting.event_id, *queued])
    return {"child": child, "early": early}


def locks_at_the_fork(program: Program) -> dict[str, Any]:
    """Another thread holds every lock of the outbox while the parent forks, and lets go after it."""
    outbox = program.outbox()
    with outbox:
        program.until_effects(program.write(outbox))
        program.at_rest(outbox)
        engine, held, go = outbox._engine, threading.Barrier(2), threading.Event()
        locks: list[Any] = [
            engine.dispatcher.lanes._monitor,
            engine.dispatcher.lanes._watchers,
            engine.settler.monitor,
            engine.settler._space,
            engine.poller.monitor,
            engine.held._lock,
            engine.meter._lock,
            engine.runtime._lock,
            ids.new_id.__self__._lock,
        ]

        def hold() -> None:
            with contextlib.ExitStack() as stack:
                for lock in locks:
                    stack.enter_context(lock)
                held.wait()
                go.wait()

        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        child = Child(lambda: uses_it(program, outbox))
        go.set()
        holder.join()
        said = child.said()
        program.until_effects(program.write(outbox))
    return {"child": said}


def transaction_of_another_thread(program: Program) -> dict[str, Any]:
    """Another thread is inside a transaction when the parent forks; it commits soon after, by itself."""
    program.hurry(2.0)
    outbox = program.outbox()
    with outbox:
        program.at_rest(outbox)
        inside, forks = threading.Barrier(2), forking_begins()

        def hold() -> None:
            with outbox.transaction():
                outbox.write(program.event())
                inside.wait()
                forks.wait(CHILD_PATIENCE)
                threading.Event().wait(0.3)  # in which a fork that waits for nobody is over

        holder = threading.Thread(target=hold)
        holder.start()
        inside.wait()
        child = Child(lambda: uses_it(program, outbox)).said()
        was_inside = forks.is_set()
        holder.join()
        program.until_effects(program.write(outbox))
    return {"child": child, "was_inside": was_inside}


def opening_at_the_fork(program: Program) -> dict[str, Any]:
    """Another thread is opening a connection when the parent forks. Was it still, as the child sees it?"""
    begun, is_opening, forks = threading.Event(), [], forking_begins()

    def connect() -> sqlite3.Connection:
        opened = sqlite3.connect(program.folder / "outbox.db", check_same_thread=False)
        if threading.current_thread().name == "opens":
            is_opening.append(True)
            begun.set()
            forks.wait(CHILD_PATIENCE)
            threading.Event().wait(0.3)  # in which a fork that waits for nobody is over
            is_opening.pop()
        return opened

    outbox = Outbox(connect, **CALM)
    outbox.create_schema()
    outbox.close()
    thread = threading.Thread(target=outbox.stats, name="opens")
    thread.start()
    begun.wait()
    child = Child(lambda: bool(is_opening)).said()
    thread.join()
    outbox.close()
    return {"child": child}


def busy_at_the_fork(program: Program) -> dict[str, Any]:
    """The parent forks again and again while its threads write and deliver; every child writes one event."""
    program.hurry(3.0)
    outbox = program.outbox()
    ends, failed = threading.Event(), None
    with outbox:

        def busy() -> None:
            while not ends.is_set():
                program.write(outbox)
                ends.wait(0.001)

        thread = threading.Thread(target=busy)
        thread.start()
        program.until(lambda: len(program.journal.ids("effect")) > 50)  # every thread has opened its connection
        children, enough = 0, 30 if program.world.database == "sqlite" else 10
        while children < enough and failed is None:
            children += 1
            said = Child(lambda: program.write(outbox)).said(6.0)
            failed = None if "returned" in said else said
        ends.set()
        thread.join()
    return {"children": children, "failed": failed}


def transaction_of_the_forking_thread(program: Program) -> dict[str, Any]:
    """The parent forks inside its transaction; the child tries to write into it."""
    outbox = program.outbox()
    with outbox:
        program.at_rest(outbox)
        inside = program.event()
        with outbox.transaction() as tx:
            outbox.write(inside)
            ambient = Child(lambda: outbox.write(program.event())).said()
            passed = Child(lambda: outbox.write(program.event(), tx=tx)).said()
            is_still_open = tx.is_transaction_active()
        program.journal.say("ok", inside.event_id)
        program.until_effects([inside.event_id])
    return {"ambient": ambient, "passed": passed, "is_still_open": is_still_open, "inside": inside.event_id}


def inherited_transaction(program: Program, use: Callable[[Any], Any]) -> dict[str, Any]:
    """The child uses a transaction that its parent has open. Then, before the parent commits, is its row to be seen?"""
    outbox = program.outbox()
    with outbox:
        program.at_rest(outbox)
        inside = program.event()
        with outbox.transaction() as tx:
            outbox.write(inside)
            said = Child(lambda: use(tx)).said()
            seen = Child(lambda: is_in_table(program, inside)).said()
            is_still_open = tx.is_transaction_active()
        program.journal.say("ok", inside.event_id)
        program.until_effects([inside.event_id])
    return {"said": said, "seen": seen, "is_still_open": is_still_open}


def inherited_commit(program: Program) -> dict[str, Any]:
    return inherited_transaction(program, lambda tx: tx.commit())


def inherited_rollback(program: Program) -> dict[str, Any]:
    return inherited_transaction(program, lambda tx: tx.rollback())


def inherited_end_of_block(program: Program) -> dict[str, Any]:
    return inherited_transaction(program, lambda tx: tx.__exit__(None, None, None))


def inherited_statement(program: Program) -> dict[str, Any]:
    return inherited_transaction(program, lambda tx: tx.execute("DELETE FROM outbox_event").rowcount)


def is_in_table(program: Program, event: EventEnvelope) -> bool:
    return bool(program.world.rows("SELECT 1 FROM outbox_event WHERE event_id = ?", event.event_id))


def own_transaction_of_the_child(program: Program) -> dict[str, Any]:
    """Forked inside a transaction of its parent's, a child opens one of its own once the parent's has ended."""
    program.hurry(0.5)
    outbox = program.outbox()
    with outbox:
        program.at_rest(outbox)
        with outbox.transaction():
            outbox.write(program.event())
            child = Child(lambda: uses_it(program, outbox))
        said = child.said()
    return {"child": said}


def own_transaction_of_the_child_async(program: Program) -> dict[str, Any]:
    """The same, forked by a task that is inside a transaction; the child runs a loop of its own."""
    program.hurry(0.5)

    async def main() -> Any:
        outbox = program.outbox(AsyncOutbox)
        async with outbox:
            await outbox.poll()
            async with outbox.transaction():
                await outbox.write(program.event())
                child = Child(lambda: serves(program, outbox))
            return await asyncio.to_thread(child.said)

    return {"child": asyncio.run(main())}


def preloaded(program: Program, kind: Any = Outbox) -> dict[str, Any]:
    """As gunicorn does it: the application is loaded and makes its tables, three workers are forked, each starts."""
    outbox = program.outbox(kind)
    made = outbox.create_schema()
    if made is not None:
        asyncio.run(made)
    children = [Child(lambda: serves(program, outbox)) for _ in range(3)]
    return {"children": [child.said() for child in children]}


def serves(program: Program, outbox: Any) -> dict[str, Any]:
    if isinstance(outbox, AsyncOutbox):
        return asyncio.run(serves_async(program, outbox))
    with outbox:
        ids = program.write(outbox, 50)
        program.until_effects(ids)
        return {"owner": outbox._engine.owner, "ids": ids}


async def serves_async(program: Program, outbox: AsyncOutbox) -> dict[str, Any]:
    ids = []
    async with outbox:
        for number in range(50):
            event = program.event(number)
            async with outbox.transaction():
                await outbox.write(event)
            program.journal.say("ok", event.event_id)
            ids.append(event.event_id)
        await asyncio.to_thread(program.until_effects, ids)
        return {"owner": outbox._engine.owner, "ids": ids}


def preloaded_async(program: Program) -> dict[str, Any]:
    return preloaded(program, AsyncOutbox)


def forked_from_a_running_loop(program: Program) -> dict[str, Any]:
    """A started AsyncOutbox; a task of its loop forks, and the child runs a loop of its own with the same object."""

    async def main() -> dict[str, Any]:
        outbox = program.outbox(AsyncOutbox)
        async with outbox:
            await outbox.poll()
            owner = outbox._engine.owner
            child = Child(lambda: serves(program, outbox))
            said = await asyncio.to_thread(child.said)
            event = program.event()
            async with outbox.transaction():
                await outbox.write(event)
            program.journal.say("ok", event.event_id)
            await asyncio.to_thread(program.until_effects, [event.event_id])
        return {"owner": owner, "child": said}

    return asyncio.run(main())


def forked_twice(program: Program) -> dict[str, Any]:
    """A child that does not use the outbox forks again, as daemons do; the grandchild writes."""
    outbox = program.outbox()
    with outbox:
        program.at_rest(outbox)
        child = Child(lambda: Child(lambda: (program.write(outbox), outbox.is_started)).said()).said()
    return {"child": child}


def forked_inside_a_handler(program: Program) -> dict[str, Any]:
    """Handlers fork, of either colour, in workers and in the caller's own thread; other events wait in memory then."""
    ended = {}
    for colour in ("sync", "async"):
        for is_started in (True, False):
            outbox, handler = Outbox(program.world.url, worker_count=1, create_schema=True, **CALM), forker(program)
            outbox.register(EVENT, handler if colour == "sync" else handler.coloured)
            if is_started:
                outbox.start()
            with outbox.transaction():
                ids = outbox.write_all(forking_events(program))
            if not is_started:
                outbox.drain()
            program.until_effects(ids)
            ended[f"{colour}, {is_started=}"] = handler.ends()
            outbox.close()
    return {"ended": ended, "pid": os.getpid()}


def forked_inside_a_handler_async(program: Program) -> dict[str, Any]:
    async def main(colour: str) -> dict[str, Any]:
        outbox, handler = AsyncOutbox(program.world.url, worker_count=1, create_schema=True, **CALM), forker(program)
        outbox.register(EVENT, handler if colour == "sync" else handler.coloured)
        async with outbox:
            async with outbox.transaction():
                ids = await outbox.write_all(forking_events(program))
            await asyncio.to_thread(program.until_effects, ids)
            return await asyncio.to_thread(handler.ends)

    return {"ended": {colour: asyncio.run(main(colour)) for colour in ("sync", "async")}, "pid": os.getpid()}


def forker(program: Program) -> ForkingHandler:
    return ForkingHandler(program.journal)


def forking_events(program: Program) -> list[EventEnvelope]:
    ends = ("returns", "exits", "raises")
    events = [*(program.event(ends=end) for end in ends), *map(program.event, range(5))]
    for event in events:
        program.journal.say("ok", event.event_id)
    return events


def forked_by_multiprocessing(program: Program) -> dict[str, Any]:
    """multiprocessing ends its children with clean-up, finalizers included."""
    outbox = program.outbox()
    context = multiprocessing.get_context("fork")
    with outbox:
        program.until_effects(program.write(outbox, 5))
        program.at_rest(outbox)
        queue = context.SimpleQueue()
        children = [context.Process(target=lambda: queue.put(uses_it(program, outbox))) for _ in range(2)]
        for child in children:
            child.start()
        said = [queue.get() for _ in children]
        for child in children:
            child.join(CHILD_PATIENCE)
        after = facts(program, outbox)
        program.until_effects(program.write(outbox, 5))
    return {"children": said, "ended": [child.exitcode for child in children], "after": after}


def sessions_after_the_end_of_a_child(program: Program) -> dict[str, Any]:
    """A child that never uses the outbox ends as programs do, with clean-up, and the next one without. Which sessions
    the parent had, and has."""
    outbox = program.outbox()
    with outbox:
        program.until_effects(program.write(outbox, 5))
        program.at_rest(outbox)
        before, ends = sessions(program.world), []
        for end in (sys.exit, os._exit):
            pid = os.fork()
            if not pid:
                end(0)
            ends.append(os.waitpid(pid, 0)[1])
        program.until_effects(program.write(outbox, 5))
        after = sessions(program.world)
    return {"ends": ends, "before": sorted(before), "after": sorted(after)}


def killed_beside_its_child(program: Program, target: Callable[[Program], Any] | None = None) -> dict[str, Any]:
    """A process forks inside a transaction, its store at work beside it, and is killed. Its child goes on. Which
    sessions there are of those that it had."""

    def parent(told: int) -> None:
        outbox = program.outbox() if target is None else Outbox(target(program), **CALM)
        with outbox:
            program.write(outbox)
            program.until(lambda: is_connected(outbox))
            program.at_rest(outbox)
            outbox.poll()
            with outbox.transaction():
                outbox.write(program.event())
                lives_on(program, told)

    return killed(program, parent)


def killed_beside_its_child_with_an_engine(program: Program) -> dict[str, Any]:
    def engine(program: Program) -> Any:
        driver = {"postgres": "postgresql+psycopg", "mariadb": "mysql+pymysql"}[program.world.database]
        return sqlalchemy.create_engine(f"{driver}://{program.world.url.partition('://')[2]}")

    return killed_beside_its_child(program, engine)


def killed_on_a_loop_beside_its_child(program: Program) -> dict[str, Any]:
    async def main(told: int) -> None:
        async with program.outbox(AsyncOutbox) as outbox:
            while not is_connected(outbox):
                await asyncio.sleep(0)
            for _ in range(2):
                await outbox.poll()
            async with outbox.transaction():
                await outbox.write(program.event())
                lives_on(program, told)

    return killed(program, lambda told: asyncio.run(main(told)))


def is_connected(outbox: Any) -> bool:
    """Whoever listens does, and makes the poller look; after that nobody opens a connection that is not known yet."""
    return outbox._engine._listener is None or bool(outbox._store._listening)


def lives_on(program: Program, told: int) -> None:
    """Fork a child that has nothing to do, and say so when it does it."""
    had = sessions(program.world)
    if not (child := os.fork()):
        threading.Event().wait()
    os.write(told, json.dumps({"child": child, "had": sorted(had)}).encode())
    threading.Event().wait()


def killed(program: Program, parent: Callable[[int], None]) -> dict[str, Any]:
    program.outbox().create_schema()
    heard, told = os.pipe()
    before = sessions(program.world)
    if not (pid := os.fork()):
        abandoned.append(program.world.__dict__.pop("somebody"))  # whose connection is not the child's to close
        parent(told)
    said = json.loads(os.read(heard, 65536))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    had = set(said["had"]) - before
    try:
        with contextlib.suppress(AssertionError):
            program.until(lambda: not sessions(program.world) & had)
        return {"had": len(had), "has": len(sessions(program.world) & had)}
    finally:
        os.kill(said["child"], signal.SIGKILL)


def private_database(program: Program) -> dict[str, Any]:
    """A child that ends by itself does not take its parent's temporary database along."""
    outbox = Outbox("sqlite://", **CALM)
    outbox.register(EVENT, Listener(program.journal).sync)
    context = multiprocessing.get_context("fork")
    with outbox:
        program.until_effects(program.write(outbox))
        program.at_rest(outbox)
        child = context.Process(target=lambda: program.until_effects(program.write(outbox)))
        child.start()
        child.join(CHILD_PATIENCE)
        program.until_effects(program.write(outbox))
    return {"ended": child.exitcode}


def main(spec: dict[str, Any]) -> None:
    program = Program(world_of(spec))
    print(json.dumps({"answer": globals()[spec["program"]](program)}), flush=True)
