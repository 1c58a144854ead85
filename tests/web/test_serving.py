"""A server for the probes alone: for either runtime, quiet, and gone when its block ends."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading

import httpx
import pytest

from aftercommit import AsyncOutbox, InvalidOption, Outbox
from aftercommit.web import serve_probes


def test_an_outbox_is_served_from_a_thread_that_ends_with_the_block(caplog: pytest.LogCaptureFixture) -> None:
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    with caplog.at_level(logging.INFO), Outbox("sqlite://") as outbox, serve_probes(outbox, port=0) as server:
        url = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=url) as browser:
            for path in ("/livez", "/readyz", "/startupz", "/api/stats"):
                assert browser.get(path).status_code == 200, path
            assert browser.get("/api/stats", headers={"X-Forwarded-For": "203.0.113.7"}).status_code == 403
        assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert not [record for record in caplog.records if record.name == "uvicorn.access"]
    assert logging.getLogger("uvicorn.access").propagate, "other servers of this process keep theirs"
    assert not [thread for thread in threading.enumerate() if thread.name == "aftercommit-probes"]
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/livez")


def test_an_async_outbox_is_served_on_its_own_loop() -> None:
    async def scenario() -> None:
        tasks = asyncio.all_tasks()
        async with AsyncOutbox("sqlite://") as outbox:
            before = asyncio.all_tasks()
            async with serve_probes(outbox, port=0) as server, httpx.AsyncClient() as browser:
                for path in ("/livez", "/readyz", "/startupz", "/api/stats"):
                    assert (await browser.get(f"http://127.0.0.1:{server.port}{path}")).status_code == 200, path
            assert asyncio.all_tasks() == before
        assert asyncio.all_tasks() == tasks

    asyncio.run(scenario())


def test_an_address_that_is_taken_is_said_before_anything_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = pytest.raises(InvalidOption, match=f"cannot listen on 127.0.0.1:{port}")
        with refused, serve_probes(Outbox("sqlite://"), port=port):
            pass


def test_the_block_has_the_colour_of_the_outbox() -> None:
    with pytest.raises(InvalidOption, match="async with"), serve_probes(AsyncOutbox("sqlite://"), port=0):
        pass

    async def wrong() -> None:
        async with serve_probes(Outbox("sqlite://"), port=0):
            pass

    with pytest.raises(InvalidOption, match="with serve_probes"):
        asyncio.run(wrong())
