"""Promise 14 for parts that are wired by hand: a forked child has an owner, threads and connections of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support import PATIENCE, World

SCRIPT = """
import os, sys, threading
from aftercommit import DefaultListenerRegistry, DispatcherCommitHook, OutboxDispatcher, OutboxPoller, OutboxWriter
from aftercommit.components import ThreadLocalTxContext, TransactionManager, detect_store

store, context = detect_store(sys.argv[1]), ThreadLocalTxContext()
seen = threading.Semaphore(0)
registry = DefaultListenerRegistry().register("Happened", lambda event: seen.release())
dispatcher = OutboxDispatcher(store, registry)
poller = OutboxPoller(store, dispatcher, owner_id="poller").start()
writer, manager = OutboxWriter(context, store, DispatcherCommitHook(dispatcher)), TransactionManager(store, context)

def deliver_one():
    with manager.transaction():
        writer.write("Happened", "{}")
    assert seen.acquire(timeout=20)
    return dispatcher.line().owner

mine = deliver_one()
child = os.fork()
if not child:
    theirs = deliver_one()
    poller.start()
    with manager.transaction():
        OutboxWriter(context, store).write("Happened", "{}")  # for the poller
    poller.poll()
    assert seen.acquire(timeout=20)
    dispatcher.close()
    os._exit(0 if theirs != mine else 1)
assert os.waitpid(child, 0)[1] == 0
assert deliver_one() == mine
dispatcher.close()
"""


def test_promise_14_fork_safe_parts_wired_by_hand_work_on_in_a_child_and_in_its_parent(tmp_path: Path) -> None:
    world = World("threads", tmp_path)
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, world.url], capture_output=True, text=True, timeout=3 * PATIENCE, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert world.statuses() == [1] * 4
