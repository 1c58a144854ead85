"""One process that delivers: it starts the outbox, waits until it is told to stop, and gives back what it holds."""

from __future__ import annotations

import os
import select
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import aftercommit
from aftercommit.cli.addresses import Address
from aftercommit.cli.exits import Exit
from aftercommit.cli.session import Session
from aftercommit.cli.signals import StopSignals
from aftercommit.errors import CannotStart


def deliver(session: Session, *, http: Address | None = None, parent: int | None = None) -> int:
    """Until a signal comes, or the parent ends."""
    signals = StopSignals(parent=parent)
    _delivering(session)
    session.ask(lambda outbox: _until_stopped(session, outbox, signals, http))
    session.output.say("stopped")
    return Exit.OK


async def _until_stopped(session: Session, outbox: Any, signals: StopSignals, http: Address | None) -> None:
    """One walk for both colours."""
    async with AsyncExitStack() as stack:
        if http is not None:  # first, and longest: they tell that it starts, and that it stops
            server = await stack.enter_async_context(session.block(_probes(outbox, http)))
            session.output.say(f"probes on http://{http._replace(port=server.port)}")
        await stack.enter_async_context(session.block(outbox))
        session.output.say(_greeting(outbox))
        while not signals.have_come():
            await _readable(session, signals.readable)
        session.output.say("stopping: what runs may end; a second signal ends it at once")


def drain(session: Session) -> int:
    """What is due, in this process; 1 when some of it died."""
    _delivering(session)
    done = session.ask(lambda outbox: outbox.drain())
    counts = {"delivered": done.delivered, "retried": done.retried, "deferred": done.deferred, "dead": done.dead}
    session.output.line(", ".join(f"{count} {name}" for name, count in counts.items()))
    return Exit.PROBLEM if done.dead else Exit.OK


async def _readable(session: Session, files: Sequence[int]) -> None:
    if session.is_async:
        from aftercommit.runtime.foreground import until_readable  # noqa: PLC0415  (it brings asyncio along)

        await until_readable(files)
    else:
        select.select(files, [], [])


def _probes(outbox: Any, http: Address) -> Any:
    from aftercommit.web import serve_probes  # noqa: PLC0415  (it is an extra)

    return serve_probes(outbox, http.host, http.port)


def _delivering(session: Session) -> None:
    """Refuse an outbox that has nothing to deliver to."""
    outbox, place = session.outbox, session.target.place
    if not outbox.config.delivers:
        raise CannotStart(f"{place} is a writer-only outbox, which delivers nothing", fix="name one that has handlers")
    if not outbox._router:
        raise CannotStart(
            f"{place} has no handlers, so it would deliver nothing",
            fix="name the module that declares them, or import it where the outbox is made"
            if session.target.has_handlers
            else "name the outbox of your program: aftercommit run shop:outbox",
        )


def _greeting(outbox: Any) -> str:
    handlers = [*outbox._roster.handlers] or ["listeners"]
    shown = ", ".join(handlers[:5]) + (f" and {len(handlers) - 5} more" if len(handlers) > 5 else "")
    return f"aftercommit {aftercommit.__version__}: process {os.getpid()} delivers from {outbox!r} to {shown}"
