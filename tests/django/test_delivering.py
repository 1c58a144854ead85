"""Handlers: found by themselves, run between requests, in threads and on the loop; several databases; async code."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction

from aftercommit import NotInTransaction
from aftercommit.django import outbox
from aftercommit.runtime.threads import run
from tests.django import kit
from tests.django.shop import handlers
from tests.django.shop.models import Order
from tests.support import PATIENCE, Collector

Make = Callable[..., Any]


def test_handlers_of_installed_apps_are_found(file_alias: str) -> None:
    kit.make_tables("default")
    with transaction.atomic():
        event_id = outbox.write("Discovered", 1)
        outbox.drain()
    assert handlers.received == [event_id]
    outbox.close()


@pytest.mark.parametrize("timeout", [None, "20s"], ids=["in the worker", "beside it"])
def test_connections_of_workers_are_closed_after_each_event(
    alias: str, make_outbox: Make, colour: Any, timeout: str | None
) -> None:
    """CONN_MAX_AGE is 0 here: what Django does between requests is done between events."""
    outbox, seen = make_outbox(alias, worker_count=1), Collector()

    def count() -> Any:
        connection = connections[alias]
        was_open = connection.connection is not None
        Order.objects.using(alias).count()
        return (threading.get_ident(), was_open, connection)

    def handle(event: Any) -> None:
        seen.add(count())

    async def handle_async(event: Any) -> None:
        seen.add(await sync_to_async(count)())

    is_sync = colour(count) is count
    outbox.handler("Placed", id="count", timeout=timeout)(handle if is_sync else handle_async)
    outbox.start()
    for number in range(3):
        with transaction.atomic(using=alias):
            outbox.write("Placed", number)
        run(seen.reach(number + 1))
        outbox.drain()
    assert [was_open for _, was_open, _ in seen] == [False] * 3
    assert all(thread != threading.get_ident() for thread, _, _ in seen)
    assert all(connection.connection is None for _, _, connection in seen)


def test_drain_leaves_the_connection_of_its_caller_alone(alias: str, make_outbox: Make) -> None:
    outbox = make_outbox(alias)
    connections[alias].ensure_connection()
    mine = connections[alias].connection
    outbox.register("Placed", lambda event: Order.objects.using(alias).count())
    with transaction.atomic(using=alias):
        outbox.write("Placed", 1)
    assert outbox.drain().delivered == 1
    assert connections[alias].connection is mine


def test_each_database_has_its_own_events(alias: str, make_outbox: Make) -> None:
    kit.make_tables("second")
    kit.clear_tables("second")
    one, other = make_outbox(alias), make_outbox("second")
    seen: list[tuple[str, str]] = []
    one.register("Placed", lambda event: seen.append((alias, event.payload_json)))
    other.register("Placed", lambda event: seen.append(("second", event.payload_json)))

    class Undo(Exception):
        pass

    with transaction.atomic(using=alias):
        one.write("Placed", 1)
        with pytest.raises(Undo), transaction.atomic(using="second"):
            other.write("Placed", 2)
            raise Undo
        with transaction.atomic(using="second"):
            other.write("Placed", 3)
    one.drain()
    other.drain()
    assert seen == [(alias, "1"), ("second", "3")]


def test_in_async_code_the_block_is_in_a_thread(alias: str, make_outbox: Make, colour: Any) -> None:
    outbox, seen = make_outbox(alias), Collector()
    outbox.handler("Placed", id="see")(painted_seen(colour, seen))
    outbox.start()

    def place() -> str:
        try:
            with transaction.atomic(using=alias):
                Order.objects.using(alias).create(number=7)
                return str(outbox.write("Placed", 7))
        finally:
            connections[alias].close()
            del connections[alias]  # the thread outlives the test, and another database may have the alias then

    async def view() -> str:
        with pytest.raises(NotInTransaction, match="async code") as caught:
            outbox.write("Placed", 7)
        assert "sync_to_async" in caught.value.fix
        return await sync_to_async(place)()

    event_id = asyncio.run(view())
    run(seen.reach(1))
    assert seen == [event_id]


def painted_seen(colour: Any, seen: Collector) -> Any:
    return colour(lambda event: seen.add(event.event_id))


@pytest.mark.parametrize("program", ["preloaded", "in_a_block"])
def test_a_forked_process_leaves_its_parent_alone(program: str, tmp_path: Path) -> None:
    """In a process of its own, because a fork copies everything, a test runner included."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.django.forking", program, tmp_path / "shop.sqlite3"],
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )
    assert (ran.returncode, ran.stdout.splitlines()) == (0, ["child: ok", "parent: ok"]), ran.stderr
