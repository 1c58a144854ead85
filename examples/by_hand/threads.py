"""An outbox wired by hand: delivery from memory, takeover after a crash, a retry, a dead letter.

python -m examples.by_hand.threads [URL]
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

from aftercommit import (
    DefaultListenerRegistry,
    DispatcherCommitHook,
    EventEnvelope,
    EventInterceptor,
    EventStore,
    Fixed,
    MetricsExporter,
    OutboxDispatcher,
    OutboxPoller,
    OutboxWriter,
    QueuedEvent,
)
from aftercommit.components import ThreadLocalTxContext, TransactionManager, detect_store


def main(url: str) -> None:
    store = detect_store(url, create_schema=True)
    steps, deaths = threading.Semaphore(0), Deaths()
    registry = DefaultListenerRegistry()
    registry.register("UserCreated", lambda event: steps.release())
    registry.register("MailSent", flaky(steps))
    registry.register("CardCharged", refused)
    dispatcher = OutboxDispatcher(
        store,
        registry,
        worker_count=4,
        max_attempts=2,
        retry_policy=Fixed("10ms"),
        metrics=deaths,
        interceptors=[EventInterceptor.before(show)],
    )
    poller = OutboxPoller(store, dispatcher, owner_id="poller-1", poll_interval="200ms")
    context = ThreadLocalTxContext()
    manager = TransactionManager(store, context)
    writer = OutboxWriter(context, store, DispatcherCommitHook(dispatcher))

    poller.start()
    for event_type in ("UserCreated", "MailSent"):
        with manager.begin() as tx:
            writer.write(event_type, '{"id":123}')
            tx.commit()
        steps.acquire(timeout=20)

    with manager.begin() as tx:
        writer.write("CardCharged", '{"id":123}')
        tx.commit()
    deaths.one.wait(20)
    print("CardCharged is dead")

    subprocess.run([sys.executable, "-m", "examples.by_hand.threads", url, "crash"], check=False)
    steps.acquire(timeout=20)  # its lease is over after a second, and the poller finds it
    poller.close()
    dispatcher.close()


def crash(store: EventStore) -> None:
    """Write, commit, and end in the middle of the delivery."""
    registry = DefaultListenerRegistry().register("UserCreated", lambda event: os._exit(1))
    dispatcher = OutboxDispatcher(store, registry, lock_timeout="1s")
    context = ThreadLocalTxContext()
    writer = OutboxWriter(context, store, DispatcherCommitHook(dispatcher))
    with TransactionManager(store, context).begin() as tx:
        writer.write("UserCreated", '{"id":124}')
        tx.commit()
    threading.Event().wait(20)


def show(event: EventEnvelope, queued: QueuedEvent) -> None:
    print(f"{queued.source.value} {event.event_type} {event.payload_json} after {queued.attempts} failures", flush=True)


def flaky(steps: threading.Semaphore) -> Callable[[EventEnvelope], None]:
    """A listener that fails once."""
    failed = threading.Event()

    def listen(event: EventEnvelope) -> None:
        if not failed.is_set():
            failed.set()
            raise TimeoutError("the mail server does not answer")
        steps.release()

    return listen


def refused(event: EventEnvelope) -> None:
    raise PermissionError("the card is refused")


class Deaths(MetricsExporter):
    def __init__(self) -> None:
        self.one = threading.Event()

    def increment_dispatch_dead(self) -> None:
        self.one.set()


if __name__ == "__main__":
    if sys.argv[2:] == ["crash"]:
        crash(detect_store(sys.argv[1]))
    elif len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(f"sqlite:///{folder}/by_hand.db")
