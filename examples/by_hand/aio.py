"""The same under asyncio: delivery from memory, takeover after a crash, a retry, a dead letter.

python -m examples.by_hand.aio [URL]
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable

from aftercommit import (
    AsyncOutboxDispatcher,
    AsyncOutboxPoller,
    AsyncOutboxWriter,
    DefaultListenerRegistry,
    DispatcherCommitHook,
    EventEnvelope,
    EventInterceptor,
    EventStore,
    Fixed,
    MetricsExporter,
    QueuedEvent,
)
from aftercommit.components import AsyncTransactionManager, TaskLocalTxContext, detect_async_store


async def main(url: str) -> None:
    store = detect_async_store(url, create_schema=True)
    steps, deaths = asyncio.Semaphore(0), Deaths()
    registry = DefaultListenerRegistry()
    registry.register("UserCreated", ends(steps))
    registry.register("MailSent", flaky(steps))
    registry.register("CardCharged", refused)
    dispatcher = AsyncOutboxDispatcher(
        store,
        registry,
        worker_count=4,
        max_attempts=2,
        retry_policy=Fixed("10ms"),
        metrics=deaths,
        interceptors=[EventInterceptor.before(show)],
    )
    poller = AsyncOutboxPoller(store, dispatcher, owner_id="poller-1", poll_interval="200ms")
    context = TaskLocalTxContext()
    manager = AsyncTransactionManager(store, context)
    writer = AsyncOutboxWriter(context, store, DispatcherCommitHook(dispatcher))

    await poller.start()
    for event_type in ("UserCreated", "MailSent"):
        async with await manager.begin() as tx:
            await writer.write(event_type, '{"id":123}')
            await tx.commit()
        await asyncio.wait_for(steps.acquire(), 20)

    async with await manager.begin() as tx:
        await writer.write("CardCharged", '{"id":123}')
        await tx.commit()
    await asyncio.wait_for(deaths.one.wait(), 20)
    print("CardCharged is dead")

    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "examples.by_hand.aio", url, "crash")
    await process.wait()
    await asyncio.wait_for(steps.acquire(), 20)  # its lease is over after a second, and the poller finds it
    await poller.close()
    await dispatcher.close()


async def crash(store: EventStore) -> None:
    """Write, commit, and end in the middle of the delivery."""
    registry = DefaultListenerRegistry().register("UserCreated", lambda event: os._exit(1))
    dispatcher = AsyncOutboxDispatcher(store, registry, lock_timeout="1s")
    context = TaskLocalTxContext()
    writer = AsyncOutboxWriter(context, store, DispatcherCommitHook(dispatcher))
    async with await AsyncTransactionManager(store, context).begin() as tx:
        await writer.write("UserCreated", '{"id":124}')
        await tx.commit()
    await asyncio.sleep(20)


def show(event: EventEnvelope, queued: QueuedEvent) -> None:
    print(f"{queued.source.value} {event.event_type} {event.payload_json} after {queued.attempts} failures", flush=True)


def ends(steps: asyncio.Semaphore) -> Callable[[EventEnvelope], Awaitable[None]]:
    async def listen(event: EventEnvelope) -> None:
        steps.release()

    return listen


def flaky(steps: asyncio.Semaphore) -> Callable[[EventEnvelope], Awaitable[None]]:
    """A listener that fails once."""
    failures: list[Exception] = []

    async def listen(event: EventEnvelope) -> None:
        if not failures:
            failures.append(TimeoutError("the mail server does not answer"))
            raise failures[0]
        steps.release()

    return listen


async def refused(event: EventEnvelope) -> None:
    raise PermissionError("the card is refused")


class Deaths(MetricsExporter):
    def __init__(self) -> None:
        self.one = asyncio.Event()

    def increment_dispatch_dead(self) -> None:
        self.one.set()


if __name__ == "__main__":
    if sys.argv[2:] == ["crash"]:
        asyncio.run(crash(detect_async_store(sys.argv[1])))
    elif len(sys.argv) > 1:
        asyncio.run(main(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(main(f"sqlite:///{folder}/by_hand.db"))
