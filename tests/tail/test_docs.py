"""The pages of the tail and of Debezium do what they say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import psycopg
import pytest

import aftercommit
from aftercommit.stores.postgres.pgoutput import Insert, Relation, decode
from tests.tail.kit import TailWorld, write

DOCS = Path(__file__).parents[2] / "docs"

#: What the router's documentation asks of the columns that its options name.
TEXT = {"character varying", "text"}
ROUTER = {
    "table.field.event.id": TEXT | {"uuid"},
    "table.field.event.key": TEXT,
    "table.field.event.type": TEXT,
    "table.field.event.payload": TEXT | {"jsonb", "json", "bytea"},
    "route.by.field": TEXT,
}


def snippets(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_first_example_runs(threads_world: TailWorld, capsys: pytest.CaptureFixture[str]) -> None:
    first, lag, _ = snippets("replication.md", "python")
    source = first.replace("postgresql://postgres@127.0.0.1:5432/shop", threads_world.plain_url)
    source = source.replace("outbox_tail", threads_world.slot) + lag + "\ntail.close()\n"
    exec(compile(source, "replication.md", "exec"), {"__name__": "__main__"})  # noqa: S102
    said = capsys.readouterr().out.splitlines()
    assert said[0] == 'receipt for {"order":7}'
    assert said[1].endswith("None 0 False")


def test_errors_and_names_of_the_pages_are_there() -> None:
    text = (DOCS / "replication.md").read_text()
    for name in ("ReplicationTail", "AsyncReplicationTail", "ReplicationRefused", "SlotLost"):
        assert name in text
        assert hasattr(aftercommit, name)


def test_the_router_of_debezium_finds_in_the_log_what_its_options_name(threads_world: TailWorld) -> None:
    """By its published rules: the message has the payload under the key, the id and more columns in its headers, and
    its topic is named after a column."""
    (source,) = snippets("debezium.md", "json")
    config = json.loads(source)["config"]
    router = {name.removeprefix("transforms.outbox."): value for name, value in config.items()}
    placed = [part.split(":") for part in router["table.fields.additional.placement"].split(",")]
    assert config["slot.name"] == config["publication.name"]

    async def scenario() -> None:
        writer = threads_world.writer()
        await writer.create_schema()
        async with writer.transaction():
            await writer.write("OrderPlaced", '{"a": 1}', aggregate_type="Order", aggregate_id=7, headers={"h": "v"})
            await writer.write("Later", {}, deliver_after="1h")
        threads_world.change("DELETE FROM outbox_event")

    threads_world.run(scenario)
    with psycopg.connect(threads_world.plain_url) as connection:
        types = dict(
            connection.execute(
                "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'outbox_event'"
            ).fetchall()
        )
        for option, fitting in ROUTER.items():
            assert types[router[option]] in fitting, option
        assert all(name in types and placement == "header" for name, placement, _ in placed)
        published = connection.execute(
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s", (threads_world.slot,)
        ).fetchall()
        assert published == [(config["table.include.list"],)]
        changes = connection.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1',"
            " 'publication_names', %s)",
            (threads_world.slot, threads_world.slot),
        ).fetchall()
    columns: dict[int, tuple[str, ...]] = {}
    messages = []
    for (data,) in changes:
        match decode(data):
            case Relation(number, _, _, names):
                columns[number] = names
            case Insert(number, values):
                row = dict(zip(columns[number], values, strict=True))
                topic = router["route.topic.replacement"].replace(
                    "${routedByValue}", str(row[router["route.by.field"]])
                )
                headers = {"id": row[router["table.field.event.id"]]}
                headers |= {alias: row[name] for name, _, alias in placed}
                messages.append(
                    (topic, row[router["table.field.event.key"]], row[router["table.field.event.payload"]], headers)
                )
            case other:
                assert type(other).__name__ in ("Begin", "Commit"), "deletes are not published"
    (topic, key, payload, headers), _ = messages
    assert (topic, key, payload) == ("outbox.event.Order", "Order/7", '{"a": 1}')
    assert headers["id"]
    assert (headers["eventType"], headers["aggregateId"], headers["tenantId"]) == ("OrderPlaced", "7", None)
    assert json.loads(str(headers["outboxHeaders"])) == {"h": "v"}


def test_who_reads_with_something_else_is_told_apart_from_a_tail(threads_world: TailWorld) -> None:
    """Rows that Debezium reads are born done as well, and nothing of them waits."""

    async def scenario() -> None:
        writer = threads_world.writer()
        await writer.create_schema()
        await write(writer, 1)
        assert (await writer.stats()).backlog.new == 0

    threads_world.run(scenario)
