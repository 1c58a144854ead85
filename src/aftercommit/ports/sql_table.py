"""The table of a SQL store, as a library sees it that inserts rows by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from aftercommit.events.claims import NewEvent


class SqlNames(Protocol):
    """What the tables of an outbox are called, unquoted."""

    @property
    def table(self) -> str: ...

    @property
    def schema(self) -> str | None: ...

    def side(self, noun: str) -> str:
        """The table beside it that holds the schema's facts, the instances or the partitions."""


class SqlTable(Protocol):
    """The event table of a SQL store, for a library that inserts rows in a transaction of its own (SQLAlchemy)."""

    @property
    def names(self) -> SqlNames: ...

    @property
    def databases(self) -> tuple[str, ...]:
        """What SQLAlchemy calls the databases that this store is for. The first names their family."""

    @property
    def now(self) -> str:
        """The database's clock as SQL, in the type of the time columns."""

    @property
    def isolation_level(self) -> str:
        """A level that has transactions, as SQLAlchemy calls it."""

    @property
    def has_one_writer(self) -> bool:
        """Whether an open transaction keeps everybody else from writing, and so from making the table."""

    @property
    def fails_whole(self) -> bool:
        """Whether a statement that fails takes its transaction with it."""

    def creation(self) -> Sequence[str]:
        """The statements that make it and the tables beside it, with what they have to tell of themselves."""

    def lock_keys(self, keys: Sequence[str]) -> tuple[str, dict[str, object]]:
        """Locks keys until the transaction ends: a statement and its parameters, by name. Only where keys are
        serialised."""

    def values_of(self, event: NewEvent) -> dict[str, object]:
        """The parameters of the store's own INSERT."""

    def is_autocommit(self, connection: object) -> bool:
        """Whether a driver's connection would save a statement at once, as far as the driver can be asked."""

    # ------------------------------------------------------------ is it this database?

    @property
    def id_sql(self) -> str:
        """The question for the id that tells this database from every other. It fails where there is no table."""

    @property
    def whose_sql(self) -> str:
        """Asks a connection which database it leads to."""

    @property
    def knows_itself(self) -> bool:
        """Whether `is_own` can tell by now. Else the store has to be opened first."""

    def is_own(self, answer: Sequence[Sequence[object]]) -> bool:
        """Whether the rows that `whose_sql` gave are this database's."""

    def may_be(self, database: str, name: str | None) -> bool:
        """False when an address certainly leads elsewhere: the database as SQLAlchemy calls it, and its name or file
        there. Asks nobody."""
