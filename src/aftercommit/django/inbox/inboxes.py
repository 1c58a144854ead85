"""The inbox of each database, on Django's own connections."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.transaction import atomic

from aftercommit.django.databases import place_of, vendor_of
from aftercommit.django.store import BlockExecutor
from aftercommit.errors import InvalidOption, SchemaMissing
from aftercommit.events.durations import Duration, duration
from aftercommit.inbox.base import First, MessageId, receipt_of
from aftercommit.inbox.store import InboxStore, Receipt
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.store import SqlStore

T = TypeVar("T")

_OPTIONS: Final = ("table", "schema", "retention")


class DjangoInbox:
    """Tells a message that comes for the first time from one that comes again, in Django's transactions."""

    def __init__(
        self,
        alias: str = DEFAULT_DB_ALIAS,
        *,
        table: str = "inbox",
        schema: str | None = None,
        retention: Duration | None = None,
    ) -> None:
        self.alias = alias
        self._vendor = vendor_of(alias)
        self._retention = None if retention is None else duration(retention, name="retention")
        store = SqlStore(BlockExecutor(alias, self._vendor), self._vendor.dialect, where=place_of(alias))
        self.store = InboxStore(store, table=table, schema=schema, create_schema=False)

    def once(self, message_id: MessageId, *, consumer: str) -> Once:
        """A block that is true for whoever gets the message first: an atomic block, part of the one that is open.

        The id is saved with what the block does. An error that leaves it undoes both.
        """
        return Once(self, receipt_of(message_id, consumer))

    def seen(self, message_id: MessageId, *, consumer: str) -> bool:
        """Whether this consumer has had the message. For looking: only once() is safe against others."""
        return self.run(self.store.seen(receipt_of(message_id, consumer)))

    def forget(self, message_id: MessageId, *, consumer: str) -> bool:
        """Let the message be the first when it comes again. False when it was not known."""
        return self.run(self.store.forget(receipt_of(message_id, consumer)))

    def purge(self, older_than: Duration | None = None) -> int:
        """Forget what came longer ago than that, by default `retention`; how many."""
        age = self._retention if older_than is None else duration(older_than, name="older_than")
        if age is None:
            raise InvalidOption(
                "purge() was called without older_than, and the inbox has no retention",
                fix=f'AFTERCOMMIT_INBOX = {{{self.alias!r}: {{"retention": "7d"}}}}',
            )
        return self.run(self.store.purge(age))

    async def record(self, receipt: Receipt) -> bool:
        """In the atomic block that is open."""
        return await self.store.record(self._vendor.tx(connections[self.alias]), receipt)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return run(work)
        except SchemaMissing as missing:
            missing.fix = f"python manage.py migrate aftercommit_inbox --database={self.alias}"
            raise


class Once:
    """`with inbox.once(…) as first:`"""

    def __init__(self, inbox: DjangoInbox, receipt: Receipt) -> None:
        self._inbox = inbox
        self._receipt = receipt
        self._block = atomic(using=inbox.alias)

    def __enter__(self) -> First:
        self._block.__enter__()
        try:
            is_first = self._inbox.run(self._inbox.record(self._receipt))
        except BaseException as error:
            self._block.__exit__(type(error), error, error.__traceback__)
            raise
        return First(self._receipt.message_id, self._receipt.consumer, is_first, connections[self._inbox.alias])

    def __exit__(self, *error: Any) -> None:
        self._block.__exit__(*error)


_inboxes: Final[dict[str, DjangoInbox]] = {}


def inbox_for(alias: str = DEFAULT_DB_ALIAS) -> DjangoInbox:
    """The inbox of a database: always the same one, with the options of settings.AFTERCOMMIT_INBOX."""
    if alias not in _inboxes:
        if alias not in connections:
            raise InvalidOption(
                f"there is no database {alias!r} in settings.DATABASES", fix=f"use one of {', '.join(connections)}"
            )
        _inboxes[alias] = DjangoInbox(alias, **_options_of(alias))
    return _inboxes[alias]


def _options_of(alias: str) -> Mapping[str, Any]:
    given = getattr(settings, "AFTERCOMMIT_INBOX", {})
    options = given.get(alias, {}) if isinstance(given, Mapping) else None
    if not isinstance(options, Mapping) or not set(options) <= set(_OPTIONS):
        raise InvalidOption(
            f"AFTERCOMMIT_INBOX is {given!r}",
            fix=f'AFTERCOMMIT_INBOX = {{{alias!r}: {{"table": "inbox"}}}}; the options are {", ".join(_OPTIONS)}',
        )
    return options
