"""What is undone below an atomic block is delivered by nobody; the table is the judge."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from django.db import connections, transaction

from aftercommit import EventEnvelope
from tests.databases import Database
from tests.promises.waiting import until
from tests.transactions.kit import free_slots, hot_count
from tests.transactions.test_undone_unseen import TEXTS, Driver, Program, programs


def play(outbox: Any, alias: str, program: Program, name: str) -> bool:
    """As careless as a user can be: every error is passed over. Whether the block was committed."""
    connection = connections[alias]
    try:
        with transaction.atomic(using=alias):
            driver = Driver(connection.connection)
            for number, step in enumerate(program):
                with suppress(Exception):
                    if step == "write":
                        outbox.write("Seen", f'"{name}.{number}"')
                    elif step[0] == "driver":
                        list(driver.does(step[1]))
                    else:
                        with connection.cursor() as cursor:
                            for sql in TEXTS[step[1]]:
                                cursor.execute(sql)
    except Exception:
        return False
    finally:
        connection.close()  # whatever state it is in
    return True


def test_what_a_block_delivers_is_what_was_committed(
    alias: str, make_outbox: Callable[..., Any], somebody: Database
) -> None:
    seen: list[str] = []
    early: list[str] = []
    outbox = make_outbox(alias, poller_enabled=False, worker_count=1)

    def handle(event: EventEnvelope) -> None:
        if not somebody.read("SELECT 1 FROM outbox_event WHERE event_id = ?", event.event_id):
            early.append(event.payload_json)
        seen.append(event.payload_json.strip('"'))

    outbox.register("Seen", handle)
    outbox.start()
    free = free_slots(outbox)
    for number, program in enumerate(programs()):
        has_committed = play(outbox, alias, program, str(number))
        until(lambda: len(seen) == hot_count(outbox), what="all that is hot is delivered")
        assert early == [], program
        saved = {row["payload"].strip('"') for row in somebody.read("SELECT payload FROM outbox_event")}
        assert saved >= set(seen), program
        assert not (has_committed and saved - set(seen)), program
        until(lambda: free_slots(outbox) == free, what="the slots are free")
    assert {"8.0", "10.4"} <= set(seen)


def test_a_usual_block_is_asked_nothing_more(alias: str, make_outbox: Callable[..., Any]) -> None:
    """Where the driver keeps count of its statements, nobody has to look whether the rows are still there."""
    outbox = make_outbox(alias, poller_enabled=False)
    outbox.register("T", lambda _: None)
    outbox.start()
    ran: list[str] = []

    def keep(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        ran.append(sql)
        return execute(sql, *rest)

    with connections[alias].execute_wrapper(keep), transaction.atomic(using=alias):
        outbox.write("T", 1)
        with transaction.atomic(using=alias):
            outbox.write("T", 2)
    asked = [sql for sql in ran if "SELECT" in sql]
    assert len(asked) == (2 if alias == "sqlite" else 0), ran
    assert hot_count(outbox) == 2
