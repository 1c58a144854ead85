"""An ASGI app that tells an orchestrator how an outbox is, and Prometheus and people what it does."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, Final, TypeAlias, TypedDict, TypeVar, cast

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aftercommit.async_outbox import AsyncOutbox
from aftercommit.engine import Stats
from aftercommit.errors import InvalidOption
from aftercommit.events.durations import Duration, duration, seconds_of
from aftercommit.events.outcome import Raised
from aftercommit.events.redact import error_text, redact
from aftercommit.health import Health
from aftercommit.outbox import Outbox
from aftercommit.runtime.aio import AsyncioRuntime
from aftercommit.web.access import Access, may_see

AnyOutbox: TypeAlias = "Outbox | AsyncOutbox"
T = TypeVar("T")

#: Threads in which a blocking outbox is asked. What is asked there has a timeout, so none of them is taken for long.
_THREADS: Final = 4

_HEADERS: Final = {"Cache-Control": "no-store"}


def probes_app(
    outbox: AnyOutbox,
    *,
    access: Access | None = None,
    max_backlog_age: Duration | None = None,
    timeout: Duration = "1s",
    registry: Any = None,
) -> Starlette:
    """`/livez`, `/readyz`, `/startupz`, `/metrics` and `/api/stats` of an outbox, to be mounted or served as it is.

    `/metrics` and `/api/stats` show data: they answer 403 unless `access(request)` is True or, without `access`, the
    request comes from this machine. `/readyz` asks the store and waits no longer than `timeout`; with `max_backlog_age`
    it is red while an event has been due for longer. `registry` is what `/metrics` shows, by default that of the
    outbox's PrometheusMetrics.

    An AsyncOutbox is asked on the loop that serves the app, which has to be the one that it was started on.
    """
    if not isinstance(outbox, Outbox | AsyncOutbox):
        raise InvalidOption(f"probes_app() was given a {type(outbox).__name__}", fix="pass an Outbox or an AsyncOutbox")
    seconds_of(timeout, name="timeout")  # refused now, and not when somebody asks
    if max_backlog_age is not None:
        duration(max_backlog_age, name="max_backlog_age")
    readiness = _Readiness(max_backlog_age=max_backlog_age, timeout=timeout)
    probes = Probes(outbox, access, readiness, registry)
    return Starlette(
        routes=[
            Route("/livez", probes.live),
            Route("/readyz", probes.ready),
            Route("/startupz", probes.started),
            Route("/metrics", probes.metrics),
            Route("/api/stats", probes.stats),
        ]
    )


class _Readiness(TypedDict):
    max_backlog_age: Duration | None
    timeout: Duration


class Probes:
    """The answers. Those of the probes are one word to the world; whoever may see data is told what is wrong, too."""

    def __init__(self, outbox: AnyOutbox, access: Access | None, readiness: _Readiness, registry: Any) -> None:
        self._outbox = outbox
        self._access = access
        self._readiness = readiness
        self._registry = registry
        self._runtime: AsyncioRuntime | None = None

    # ------------------------------------------------------------ probes

    async def live(self, request: Request) -> Response:
        """Asks no database: one that is away is no reason to restart anybody."""
        health = self._outbox.health()
        return await self._word(request, health, "live", is_good=health.is_live)

    async def started(self, request: Request) -> Response:
        health = self._outbox.health()
        return await self._word(request, health, "started", is_good=health.is_started)

    async def ready(self, request: Request) -> Response:
        outbox = self._outbox
        if isinstance(outbox, AsyncOutbox):
            health = await outbox.check_health(**self._readiness)
        else:
            health = await self._in_thread(partial(outbox.check_health, **self._readiness))
        return await self._word(request, health, "ready", is_good=health.is_ready)

    async def _word(self, request: Request, health: Health, word: str, *, is_good: bool) -> Response:
        lines = [word if is_good else f"not {word}"]
        if health.problems and await may_see(self._access, request):
            lines += map(redact, health.problems)
        return PlainTextResponse("\n".join(lines) + "\n", 200 if is_good else 503, _HEADERS)

    # ------------------------------------------------------------ data

    async def metrics(self, request: Request) -> Response:
        if not await may_see(self._access, request):
            return _refused()
        registry = self._registry
        if registry is None:
            registry = getattr(self._outbox.config.metrics, "registry", None)
        if registry is None:
            return PlainTextResponse(
                "the outbox has no PrometheusMetrics, and probes_app() no registry\n", 404, _HEADERS
            )
        from prometheus_client.exposition import choose_encoder  # noqa: PLC0415  (an extra of its own)

        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        # In a thread: a collector of the program's may wait for something.
        text = await self._in_thread(partial(encode, registry))
        return Response(text, media_type=content_type, headers=_HEADERS)

    async def stats(self, request: Request) -> Response:
        if not await may_see(self._access, request):
            return _refused()
        outbox, timeout = self._outbox, self._readiness["timeout"]
        try:
            if isinstance(outbox, AsyncOutbox):
                stats = await outbox.stats(timeout=timeout)
            else:
                stats = await self._in_thread(partial(outbox.stats, timeout=timeout))
        except Exception as error:  # the store is away, or has no table
            return _json({"error": error_text(error)}, 503)
        return _json(_shown(outbox, stats), 200)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Never one of the program's own threads: its endpoints may have taken them all."""
        if self._runtime is None or not self._runtime.is_here():
            self._runtime = AsyncioRuntime(_THREADS)
        result = await self._runtime.call(function, context=copy_context())
        if isinstance(result, Raised):
            raise result.error
        return cast("T", result.value)


def _refused() -> Response:
    return PlainTextResponse("refused: not from this machine, or access= does not allow it\n", 403, _HEADERS)


def _json(value: object, status: int) -> Response:
    return Response(msgspec.json.encode(value), status, _HEADERS, media_type="application/json")


def _shown(outbox: AnyOutbox, stats: Stats) -> dict[str, object]:
    """Numbers in seconds, names without secrets."""
    backlog, health = stats.backlog, outbox.health()
    return {
        "owner_id": outbox.owner_id,
        "health": {
            "is_healthy": health.is_healthy,
            "is_started": health.is_started,
            "is_live": health.is_live,
            "is_ready": health.is_ready,
            "problems": [*map(redact, health.problems)],
            "warnings": [*map(redact, health.warnings)],
        },
        "backlog": {
            "new": backlog.new,
            "retry": backlog.retry,
            "dead": backlog.dead,
            "leased": backlog.leased,
            "oldest_due_seconds": backlog.oldest_due.total_seconds(),
        },
        "hot_depth": stats.hot_depth,
        "cold_depth": stats.cold_depth,
        "held": stats.held,
        "unsettled": stats.unsettled,
        "counters": stats.counters,
        "unroutable": stats.unroutable,
        "unavailable": [*map(redact, stats.unavailable)],
        "blocked": [{"key": redact(each.key), "event_id": each.event_id} for each in stats.blocked],
    }
