"""The inbox in Django's transactions, and its migration."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connections, transaction

from aftercommit import Inbox, InvalidOption, SchemaMissing
from aftercommit.django.inbox import DjangoInbox, inbox_for
from tests.databases import Database
from tests.django import kit
from tests.django.shop.models import Order
from tests.transactions.kit import Deliberate


@pytest.fixture
def inbox(alias: str) -> Iterator[DjangoInbox]:
    call_command("migrate", "aftercommit_inbox", database=alias, verbosity=0)
    yield inbox_for(alias)
    call_command("migrate", "aftercommit_inbox", "zero", database=alias, verbosity=0)
    assert "inbox" not in connections[alias].introspection.table_names()


def orders(somebody: Database) -> list[int]:
    return [row["id"] for row in somebody.read("SELECT id FROM shop_order ORDER BY id")]


def test_the_id_is_part_of_the_atomic_block(inbox: DjangoInbox, somebody: Database) -> None:
    alias = inbox.alias

    with pytest.raises(Deliberate), transaction.atomic(using=alias), inbox.once("o-1", consumer="billing") as first:
        assert first
        Order.objects.using(alias).create(id=1, number=1)
        raise Deliberate
    with pytest.raises(Deliberate), transaction.atomic(using=alias):
        with inbox.once("o-1", consumer="billing") as first:
            assert first
        raise Deliberate
    assert not inbox.seen("o-1", consumer="billing")

    with transaction.atomic(using=alias):
        Order.objects.using(alias).create(id=2, number=2)
        with pytest.raises(IntegrityError), inbox.once("o-1", consumer="billing") as first:
            assert first
            Order.objects.using(alias).create(id=3, number=3)
            Order.objects.using(alias).create(id=2, number=2)
        Order.objects.using(alias).create(id=4, number=4)
    assert orders(somebody) == [2, 4], "what was around the block goes on"

    for expected in (True, False):  # without a block around it, it is one of its own
        with inbox.once("o-1", consumer="billing") as first:
            assert bool(first) is expected
            if first:
                Order.objects.using(alias).create(id=5, number=5)
    assert orders(somebody) == [2, 4, 5]


def test_it_is_cleaned_up_and_shared_with_other_programs(
    inbox: DjangoInbox, alias: str, request: pytest.FixtureRequest, tmp_path: Any
) -> None:
    from tests.django.conftest import URLS

    url = f"sqlite:///{tmp_path}/shop.sqlite3" if alias == "sqlite" else request.getfixturevalue(URLS[alias])
    with Inbox(url) as outside:
        with outside.once("o-1", consumer="billing") as first:
            assert first
        with inbox.once("o-1", consumer="billing") as first:
            assert not first
    assert inbox.purge(older_than="1h") == 0
    assert inbox.forget("o-1", consumer="billing")
    with inbox.once("o-2", consumer="billing"):
        pass
    assert inbox.purge(older_than=0) == 1
    with pytest.raises(InvalidOption, match="AFTERCOMMIT_INBOX"):
        inbox.purge()


def test_in_a_test_case(inbox: DjangoInbox) -> None:
    def test(_: Any) -> None:
        for expected in (True, False):
            with inbox.once("o-1", consumer="billing") as first:
                assert bool(first) is expected

    kit.in_test_case(inbox.alias, test)
    assert not inbox.seen("o-1", consumer="billing")


def test_a_missing_table_is_told_with_the_command_that_makes_it(file_alias: str) -> None:
    told = pytest.raises(SchemaMissing, match="migrate aftercommit_inbox --database=sqlite")
    with told, DjangoInbox(file_alias).once("o-1", consumer="billing"):
        raise AssertionError("the block has begun")


def test_the_migration_as_sql(alias: str) -> None:
    written = StringIO()
    call_command("sqlmigrate", "aftercommit_inbox", "0001", database=alias, stdout=written)
    assert "CREATE TABLE" in written.getvalue()


def test_wrong_settings_are_told(settings_of: Any, file_alias: str) -> None:
    from aftercommit.django.inbox import inboxes

    inboxes._inboxes.pop(file_alias, None)
    wrong = settings_of(AFTERCOMMIT_INBOX={file_alias: {"tables": "inbox"}})
    with wrong, pytest.raises(InvalidOption, match="the options are"):
        inbox_for(file_alias)
    with pytest.raises(InvalidOption, match="no database"):
        inbox_for("nowhere")
