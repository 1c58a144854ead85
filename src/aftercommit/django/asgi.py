"""`application` of a server that speaks ASGI: each process that serves delivers, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from asgiref.sync import sync_to_async
from django.core.asgi import get_asgi_application as djangos

from aftercommit.django.conf import aliases
from aftercommit.django.outboxes import DjangoOutbox, outbox_for
from aftercommit.errors import OutboxError


def get_asgi_application() -> Callable[[Any, Any, Any], Awaitable[None]]:
    """Django's own, which starts the outboxes of AFTERCOMMIT with the server and closes them before it ends.

    With a server that does not tell of its life they are started by the first request of a process.
    """
    application = djangos()
    outboxes = [outbox_for(alias) for alias in aliases()]

    async def serve(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _live(outboxes, receive, send)
            return
        await _start(outboxes)
        await application(scope, receive, send)

    return serve


async def _live(outboxes: Sequence[DjangoOutbox], receive: Any, send: Any) -> None:
    await receive()
    try:
        await _start(outboxes)
    except OutboxError as error:
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    for outbox in outboxes:
        await sync_to_async(outbox.close)()
    await send({"type": "lifespan.shutdown.complete"})


async def _start(outboxes: Sequence[DjangoOutbox]) -> None:
    for outbox in outboxes:
        if not outbox.is_started:
            await sync_to_async(outbox.start)()
