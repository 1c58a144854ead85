"""docs/stores-redis.md: its examples run as they stand, on a Redis of their own."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import redis

from aftercommit import Outbox
from aftercommit.stores.redis.durability import Durability
from tests.redis_servers import PrivateRedis, RedisReplicas

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/stores-redis.md").read_text()

FIRST, BLOCK, PIPELINE, SCRIPT, DURABLE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def ran(example: str, server: PrivateRedis, **names: Any) -> dict[str, Any]:
    here = example.replace("redis://127.0.0.1:6379/0", server.url)
    exec(compile(here, "docs/stores-redis.md", "exec"), names)  # noqa: S102
    return names


@pytest.fixture
def outbox(private_redis: PrivateRedis) -> Any:
    made = Outbox(private_redis.url)
    made.seen = []
    for event_type in ("OrderPlaced", "Sold"):
        made.register(event_type, lambda event: made.seen.append(event.payload_json))
    yield made
    made.close()


@pytest.fixture
def client(private_redis: PrivateRedis) -> Any:
    made = redis.Redis.from_url(private_redis.url)
    yield made
    made.close()


def test_the_first_example_delivers(private_redis: PrivateRedis, capsys: pytest.CaptureFixture[str]) -> None:
    ran(FIRST, private_redis)
    assert capsys.readouterr().out == 'receipt for {"order":7}\n1 delivered\n'


def test_a_block_writes_both(private_redis: PrivateRedis, outbox: Any) -> None:
    ran(BLOCK, private_redis, outbox=outbox)
    assert private_redis.ask("GET", "order:7") == b"placed"
    assert outbox.drain().delivered == 1


def test_a_pipeline_takes_events_along(private_redis: PrivateRedis, outbox: Any, client: Any) -> None:
    ran(PIPELINE, private_redis, outbox=outbox, client=client)
    assert private_redis.ask("GET", "stock:7") == b"-1"
    assert outbox.drain().delivered == 1


@pytest.mark.parametrize(("stock", "left", "sold"), [(5, b"3", 1), (1, b"1", 0)])
def test_a_script_of_ones_own_appends_or_does_not(
    private_redis: PrivateRedis, outbox: Any, client: Any, stock: int, left: bytes, sold: int
) -> None:
    client.set("stock:7", stock)
    assert ran(SCRIPT, private_redis, outbox=outbox, client=client)["is_sold"] == sold
    assert client.get("stock:7") == left
    assert outbox.drain().delivered == sold
    assert outbox.seen == ['{"item":7,"count":2}'] * sold


def test_the_example_of_durability_waits_for_a_replica(redis_replicas: RedisReplicas) -> None:
    names = ran(DURABLE.replace("Outbox(", "outbox = Outbox("), redis_replicas.master, Outbox=Outbox)
    names["outbox"].write("OrderPlaced", {})
    leader = redis_replicas.fail_over()
    assert leader.ask("HLEN", "{outbox_event}:rows") == 1
    names["outbox"].close()


def test_the_page_names_every_durability() -> None:
    said = re.findall(r"^\| `(wait[^`]*)` \|", TEXT, re.MULTILINE)
    assert said == ["wait:1", "waitaof:1", "waitaof:1:1"]
    assert [Durability.of(each).said for each in said] == said
