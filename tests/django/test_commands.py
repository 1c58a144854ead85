"""`manage.py aftercommit …`, as an operator uses it."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import transaction

from aftercommit.django import outbox_for
from tests.django import kit
from tests.django.shop import handlers


@pytest.fixture(autouse=True)
def outboxes() -> Iterator[list[Any]]:
    made = [outbox_for("default"), outbox_for("second")]
    for each in made:
        kit.make_tables(each.alias)
        kit.clear_tables(each.alias)
    handlers.paper.clear()
    yield made
    for each in made:
        each.close()


def write(alias: str) -> str:
    with transaction.atomic(using=alias):
        return str(outbox_for(alias).write("Fragile", 1))


def said(*arguments: str) -> list[str]:
    out = StringIO()
    call_command("aftercommit", *arguments, stdout=out)
    return out.getvalue().splitlines()


def test_run_once_delivers_what_is_due_in_all_databases() -> None:
    handlers.paper.append(True)
    write("default")
    write("second")
    assert said("run", "--once") == [
        "default: 1 delivered, 0 to retry, 0 deferred, 0 dead",
        "second: 1 delivered, 0 to retry, 0 deferred, 0 dead",
    ]


def test_one_database_may_be_named() -> None:
    write("second")
    assert said("status", "--database", "second") == [
        "second: 1 new, 0 to retry, 0 dead, 0 leased; the oldest has been due for 0 s"
    ]
    with pytest.raises(CommandError, match="no database 'elsewhere'"):
        said("status", "--database", "elsewhere")


def test_dead_events_are_listed_replayed_and_discarded() -> None:
    ids = [write("default") for _ in range(3)]
    assert said("run", "--once", "--database=default") == ["default: 0 delivered, 0 to retry, 0 deferred, 3 dead"]
    listed = said("dead")
    assert [line.split()[:3] for line in listed] == [["default:", event_id, "Fragile"] for event_id in ids]
    assert all(line.endswith("ValueError: no paper") for line in listed)
    assert len(said("dead", "--limit", "2")) == 2
    assert said("dead", "--discard", ids[0], "--database=default") == [f"default: {ids[0]} is discarded"]
    assert said("dead", "--discard", ids[0], "--database=default") == [f"default: {ids[0]} is not dead"]
    assert said("dead", "--replay", ids[1], "--database=default") == [f"default: {ids[1]} is replayed"]
    assert said("dead", "--replay-all") == ["default: 1 replayed", "second: 0 replayed"]
    with pytest.raises(CommandError, match="not allowed with"):
        said("dead", "--replay", ids[0], "--discard", ids[0])


def test_purge_deletes_what_ended_long_ago() -> None:
    write("default")
    said("run", "--once")
    assert said("purge", "--older-than", "0s") == ["default: 0 purged", "second: 0 purged"]
    assert said("purge", "--older-than", "0s", "--dead") == ["default: 1 purged", "second: 0 purged"]
    with pytest.raises(CommandError, match="does not know how old"):
        said("purge")
    with pytest.raises(CommandError, match="older_than"):
        said("purge", "--older-than", "soon")


def test_a_step_is_needed() -> None:
    with pytest.raises(CommandError, match="step"):
        said()


def test_an_outbox_of_django_can_be_examined_in_its_block_and_outside() -> None:
    write("default")
    with transaction.atomic(using="default"):
        inside = {each.code: each.level.value for each in outbox_for("default").diagnose()}
    outside = {each.code: each.level.value for each in outbox_for("default").diagnose()}
    assert inside.keys() == outside.keys()
    assert {outside[code] for code in ("AC100", "AC101", "AC102", "AC103", "AC105", "AC107", "AC121")} == {"ok"}
