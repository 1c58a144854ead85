"""Transactional handlers: what they do with Django's connection and the mark of their event are one atomic block."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.utils import DatabaseError

from aftercommit import Fixed
from aftercommit.errors import EffectsUnsupported
from aftercommit.testing import OutboxTest
from tests.django import kit
from tests.django.shop.models import Customer, Order
from tests.support import Collector

Make = Callable[..., Any]


def customers(alias: str) -> int:
    return int(Customer.objects.using(alias).count())


@pytest.mark.parametrize("timeout", [None, "20s"], ids=["in the worker", "beside it"])
def test_queries_next_step_and_mark_are_committed_together(
    alias: str, make_outbox: Make, somebody: Any, timeout: str | None
) -> None:
    outbox, called, done = make_outbox(alias, retry_policy=Fixed("1ms")), Collector(), Collector()

    @outbox.handler("Placed", transactional=True, timeout=timeout)
    def step(event: Any, tx: Any) -> None:
        called.add(event)
        assert tx is connections[alias]
        Customer.objects.using(alias).create()
        outbox.write("Next", 1)
        if len(called) == 1:
            raise ValueError("no luck")

    @outbox.handler("Next", transactional=True)
    def last(event: Any) -> None:
        with transaction.atomic(using=alias):
            Customer.objects.using(alias).create()
        transaction.on_commit(lambda: done.add(event), using=alias)

    outbox.start()
    with transaction.atomic(using=alias):
        outbox.write("Placed", 1)
    done._wait(1, 20)
    outbox.close()
    assert [(row["event_type"], row["status"], row["attempts"]) for row in rows(somebody)] == [
        ("Placed", 1, 1),
        ("Next", 1, 0),
    ]
    assert customers(alias) == 2


def rows(somebody: Any) -> list[Any]:
    return list(somebody.read("SELECT * FROM outbox_event ORDER BY position"))


def test_a_lost_lease_and_a_broken_block_leave_nothing(alias: str, make_outbox: Make, somebody: Any) -> None:
    """The lease is lost between the claim and the call; of a block in which a statement has failed nothing is done."""

    class Thief:
        def before_dispatch(self, event: Any) -> None:
            if len(seen) == 0:
                somebody.write("UPDATE outbox_event SET lease_epoch = lease_epoch + 1")

        def after_dispatch(self, event: Any, error: Any) -> None:
            seen.append(type(error).__name__)

    seen: list[str] = []
    outbox = make_outbox(alias, retry_policy=Fixed("1ms"), interceptors=[Thief()])

    @outbox.handler("Placed", transactional=True)
    def step(event: Any) -> None:
        Customer.objects.using(alias).create()
        if len(seen) == 1:
            with pytest.raises(DatabaseError), transaction.atomic(using=alias, savepoint=False):
                Order.objects.using(alias).raw("SELECT * FROM no_such_table")._fetch_all()

    with transaction.atomic(using=alias):
        outbox.write("Placed", 1)
    outbox.drain()
    assert (seen, customers(alias)) == (["LeaseLost"], 0)
    somebody.write("UPDATE outbox_event SET lease_until = 0")
    for _ in range(2):
        outbox.drain()
        somebody.write("UPDATE outbox_event SET available_at = 0 WHERE status = 2")
    assert seen[1:] == ["TransactionManagementError", "NoneType"]
    assert customers(alias) == 1
    assert [(row["status"], row["attempts"]) for row in rows(somebody)] == [(1, 1)]
    outbox.close()


def test_in_a_test_case_the_block_is_a_savepoint(alias: str, make_outbox: Make) -> None:
    outbox, called = make_outbox(alias), []

    @outbox.handler("Placed", transactional=True, retry=Fixed("1ms"))
    def step(event: Any) -> None:
        called.append(event)
        Customer.objects.using(alias).create()
        if len(called) == 1:
            raise ValueError("no luck")

    def test(case: Any) -> None:
        with transaction.atomic(using=alias):
            outbox.write("Placed", 1)
        while len(called) < 2:
            outbox.drain()
        assert (len(called), customers(alias)) == (2, 1)

    kit.in_test_case(alias, test)
    assert customers(alias) == 0


def test_the_kit_calls_them_in_the_block_of_the_test(alias: str, make_outbox: Make) -> None:
    outbox = make_outbox(alias)

    @outbox.handler("Placed", transactional=True)
    def step(event: Any) -> None:
        Customer.objects.using(alias).create()

    def test(case: Any) -> None:
        with OutboxTest(outbox) as outbox_test:
            outbox_test.write("Placed", 1)
            result = outbox_test.drain()
            assert (result.attempts, result.delivered, customers(alias)) == (1, 1, 1)

    kit.in_test_case(alias, test)


def test_what_django_cannot_do_is_refused(file_alias: str, make_outbox: Make) -> None:
    from sqlalchemy.orm import Session

    outbox = make_outbox(file_alias)

    async def is_async(event: Any) -> None: ...

    def takes_session(event: Any, tx: Session) -> None: ...

    with pytest.raises(EffectsUnsupported, match="is async def"):
        outbox.handler("A", transactional=True)(is_async)
    with pytest.raises(EffectsUnsupported, match="is an atomic block"):
        outbox.handler("A", transactional=True)(takes_session)
