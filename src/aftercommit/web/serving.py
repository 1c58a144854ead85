"""A small server for the probes of a process that serves nothing else."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Self

from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

from aftercommit.async_outbox import AsyncOutbox
from aftercommit.errors import InvalidOption
from aftercommit.events.durations import Duration
from aftercommit.ports import Monitor, Runtime, Task
from aftercommit.runtime.aio import AsyncioRuntime
from aftercommit.runtime.threads import ThreadRuntime, run
from aftercommit.web.access import Access
from aftercommit.web.probes import AnyOutbox, probes_app

#: Seconds that requests get to end; and for the server to begin or to end.
_LAST_REQUESTS: Final = 2
_PATIENCE: Final = 10.0


def serve_probes(
    outbox: AnyOutbox,
    host: str = "127.0.0.1",
    port: int = 9100,
    *,
    access: Access | None = None,
    max_backlog_age: Duration | None = None,
    timeout: Duration = "1s",
    registry: Any = None,
) -> ProbeServer:
    """Serve `probes_app(outbox)` beside the program: `with serve_probes(outbox):` in a thread of its own, `async with`
    for an AsyncOutbox on the loop that runs.

    An address that it cannot have raises InvalidOption when the block begins. Port 0 is any that is free, told by
    `server.port`. On an address that others can reach, `/metrics` and `/api/stats` stay closed to them unless `access`
    lets them in.
    """
    app = probes_app(outbox, access=access, max_backlog_age=max_backlog_age, timeout=timeout, registry=registry)
    return ProbeServer(outbox, app, host, port)


def _listen(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family)
    except (OSError, OverflowError) as error:
        raise InvalidOption(
            f"the probes cannot listen on {host}:{port} ({error})", fix="give another address, or port=0"
        ) from error


class ProbeServer:
    """Serves until its block ends. Nothing is logged of a request, and no signal is caught."""

    def __init__(self, outbox: AnyOutbox, app: Any, host: str, port: int) -> None:
        self._is_async = isinstance(outbox, AsyncOutbox)
        self.host, self.port = host, port
        config = Config(
            app, lifespan="off", ws="none", log_config=None, log_level=None, loop="asyncio", proxy_headers=False,
            http=_Quiet, server_header=False, timeout_graceful_shutdown=_LAST_REQUESTS,
        )  # fmt: skip
        self._server = _Server(config)
        self._task: Task | None = None

    async def _start(self, runtime: Runtime) -> None:
        self._listening = _listen(self.host, self.port)
        self.port = self._listening.getsockname()[1]
        self._server.changed = changed = runtime.monitor()
        self._task = runtime.spawn("aftercommit-probes", self._serve)
        if not await changed.wait_for(lambda: self._server.started, _PATIENCE):
            raise InvalidOption(f"the probes did not begin to serve within {_PATIENCE:g} s", fix="see the log for why")

    async def _serve(self) -> None:
        if self._is_async:
            await self._server.serve([self._listening])
        else:
            self._server.run([self._listening])  # on a loop of its own, in this thread

    async def _stop(self) -> None:
        self._server.should_exit = True
        if self._task is not None:
            await self._task.join(_PATIENCE)
        self._listening.close()

    def __enter__(self) -> Self:
        if self._is_async:
            raise InvalidOption("an AsyncOutbox is served on its own loop", fix="async with serve_probes(outbox): …")
        run(self._start(ThreadRuntime()))
        return self

    def __exit__(self, *_: object) -> None:
        run(self._stop())

    async def __aenter__(self) -> Self:
        if not self._is_async:
            raise InvalidOption("an Outbox is served in a thread of its own", fix="with serve_probes(outbox): …")
        await self._start(AsyncioRuntime(1))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()


class _Server(Server):
    """Leaves the program its signals, and says when it serves."""

    changed: Monitor

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        with self.changed:
            self.changed.notify_all()


class _Quiet(H11Protocol):
    """Probes come every few seconds, and nobody wants to read of it. uvicorn's own switch is one for the whole process,
    whose other servers may want their access logs."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        self.access_log = False
