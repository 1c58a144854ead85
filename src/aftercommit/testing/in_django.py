"""Tests of Django: the outbox stays in Django's test database, in the atomic block of the test."""

from __future__ import annotations

from functools import partial
from typing import cast

from aftercommit.base import OutboxBase
from aftercommit.django.outboxes import DjangoOutbox
from aftercommit.django.store import DjangoStore
from aftercommit.django.workers import BlockRuntime
from aftercommit.testing.clock import VirtualClock
from aftercommit.testing.places import Opened, opened
from aftercommit.testing.process import Still


class StillBlock(Still, BlockRuntime):
    """Handlers run in the thread that has the atomic block."""


class TestDatabase:
    """The database that Django's test runner has made. Nothing is asked of it before the test asks for something."""

    __test__ = False

    tx = None
    has_threads = False

    def open(self, outbox: OutboxBase, clock: VirtualClock) -> Opened:
        djangos = cast("DjangoOutbox", outbox)
        options = {**djangos._store_options, "delete_completed": False}
        return opened(clock, partial(DjangoStore, djangos.alias, **options))

    def close(self) -> None:
        """It is Django's to close."""
