"""`application` of wsgi.py and asgi.py: outboxes start with the process that serves, and end with it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from httpx import ASGITransport, AsyncClient
from starlette.applications import Starlette
from starlette.routing import Mount

from aftercommit import StoreUnavailable
from aftercommit.django import outbox
from aftercommit.django.asgi import get_asgi_application
from aftercommit.django.wsgi import get_wsgi_application
from aftercommit.web import probes_app
from tests.django import kit

REQUEST = {"type": "http", "method": "GET", "path": "/", "headers": [], "query_string": b""}


@pytest.fixture(autouse=True)
def settings(settings_of: Any) -> Iterator[None]:
    """The default database alone has an outbox, which is closed afterwards."""
    kit.make_tables("default")
    with settings_of(AFTERCOMMIT={"default": {}}):
        yield
    outbox.close()


class Asgi:
    """A server that speaks to an application, one message after the other."""

    def __init__(self, *messages: str) -> None:
        self._application = get_asgi_application()
        self._messages = iter(messages)
        self.sent: list[dict[str, Any]] = []
        self.was_started: list[bool] = []

    async def receive(self) -> dict[str, Any]:
        self.was_started.append(outbox.is_started)
        return {"type": next(self._messages)}

    async def send(self, message: dict[str, Any]) -> None:
        self.sent.append(message)

    def run(self, scope: dict[str, Any]) -> list[dict[str, Any]]:
        asyncio.run(self._application(scope, self.receive, self.send))
        return self.sent


def test_wsgi_starts_with_the_first_request_and_not_when_it_is_loaded() -> None:
    application = get_wsgi_application()
    assert not outbox.is_started
    owners = []
    for _ in range(2):
        environ: dict[str, Any] = {}
        setup_testing_defaults(environ)
        application(environ, lambda *_: None)
        assert outbox.is_started
        owners.append(outbox._engine.owner)
    assert owners[0] == owners[1]


def test_probes_answer_beside_djangos_own_application() -> None:
    """As docs/serving.md tells it."""
    probes, django = Starlette(routes=[Mount("/outbox", probes_app(outbox))]), get_asgi_application()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        is_probe = scope["type"] == "http" and scope["path"].startswith("/outbox/")
        await (probes if is_probe else django)(scope, receive, send)

    async def codes() -> list[int]:
        async with AsyncClient(transport=ASGITransport(application), base_url="http://localhost") as client:
            return [(await client.get(path)).status_code for path in ("/outbox/readyz", "/", "/outbox/readyz")]

    assert asyncio.run(codes()) == [503, 404, 200], "the request for Django itself starts its outbox"


def test_asgi_starts_and_closes_with_the_server() -> None:
    server = Asgi("lifespan.startup", "lifespan.shutdown")
    sent = server.run({"type": "lifespan"})
    assert [message["type"] for message in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    assert server.was_started == [False, True]
    assert not outbox.is_started


def test_asgi_starts_with_a_request_where_the_server_tells_nothing() -> None:
    Asgi("http.request", "http.disconnect").run(REQUEST)
    assert outbox.is_started


def test_asgi_tells_the_server_why_it_cannot_start(monkeypatch: Any) -> None:
    def refuse(self: Any) -> None:
        raise StoreUnavailable("no route to the database", fix="look at the cable")

    monkeypatch.setattr(type(outbox), "start", refuse)
    (failed,) = Asgi("lifespan.startup").run({"type": "lifespan"})
    assert failed["type"] == "lifespan.startup.failed"
    assert "no route to the database" in failed["message"]
    assert "look at the cable" in failed["message"]
