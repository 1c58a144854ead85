"""What the log says of deliveries, and by what a record is known to be about an event: its attributes, without the
`outbox_` before them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from aftercommit.delivery.leases import Holding
from aftercommit.events.claims import Claimed
from aftercommit.events.log import Log
from aftercommit.events.outcome import Outcome, Retry
from aftercommit.events.redact import error_text
from aftercommit.handlers.routing import Route

log = Log("aftercommit.delivery")


async def told(
    clock: Callable[[], float],
    run: Callable[[Claimed, Route], Coroutine[Any, Any, Outcome]],
    claimed: Claimed,
    route: Route,
) -> Outcome:
    """Run it, and say how it ended: for those who want a line for each delivery."""
    began = clock()
    outcome = await run(claimed, route)
    tell_end(claimed, route, outcome, clock() - began)
    return outcome


def tell_end(claimed: Claimed, route: Route, outcome: Outcome, took: float) -> None:
    """How a delivery ended, after so many seconds."""
    name, took = type(outcome).__name__.lower(), round(took * 1000, 3)
    facts = facts_of(claimed, route)
    log.debug("%r at %s: %s in %s ms", claimed.event, route.id, name, took, outcome=name, duration_ms=took, **facts)


def log_failure(claimed: Claimed, route: Route | None, error: BaseException, outcome: Outcome) -> None:
    then = f"again in {outcome.delay.total_seconds():.3g} s" if isinstance(outcome, Retry) else "no more attempts"
    at = f" at {route.id}" if route is not None and route.handler is not None else ""
    log.warning(
        "attempt %d of %r%s failed, %s: %s", claimed.attempts + 1, claimed.event, at, then, error_text(error),
        error=error, outcome=type(outcome).__name__.lower(), **facts_of(claimed, route),
    )  # fmt: skip


def facts_of(claimed: Claimed, route: Route | None) -> dict[str, Any]:
    """Of one attempt, at this receiver if it is known."""
    handler_id = claimed.lease.key.handler_id if route is None else route.id
    return _facts(claimed, handler_id) | {"attempt": claimed.attempts + 1}


def facts_of_row(holding: Holding) -> dict[str, Any]:
    """Of a row, which may be one that cannot be decoded."""
    row = holding.lease.key
    if holding.claimed is None:
        return {"event_id": row.event_id, "handler": row.handler_id or None}
    return _facts(holding.claimed, row.handler_id)


def _facts(claimed: Claimed, handler_id: str) -> dict[str, Any]:
    event = claimed.event
    return {
        "event_id": event.event_id,
        "event_type": event.event_type,
        "key": event.key,
        "handler": handler_id or None,
    }
