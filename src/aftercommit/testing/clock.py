"""Time as a test has it: it stands still until the test moves it on, for the table as well as for the engine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from msgspec.structs import replace

from aftercommit.errors import UnknownStore
from aftercommit.stores.sql.dialect import Dialect
from aftercommit.stores.sql.statements import Migration, Statement, Statements, TableNames

#: Stands for the clock in statements, until one of them is run.
_MARK: Final = "aftercommit_now_of_the_test"


class VirtualClock:
    """The time of one test: the database's and the runtime's at once."""

    def __init__(self) -> None:
        self._began = self.now = datetime.now(UTC)
        #: Those who keep the instant in a form of their own.
        self.on_change: list[Callable[[], None]] = []

    def elapsed(self) -> float:
        """Seconds, as a runtime wants them."""
        return (self.now - self._began).total_seconds()

    def move_to(self, now: datetime) -> None:
        """Never back."""
        if now > self.now:
            self.now = now
            for tell in self.on_change:
                tell()

    def move_on(self, by: timedelta) -> None:
        self.move_to(self.now + by)

    def literal(self, dialect: Dialect) -> str:
        """Now, as a statement of this database says it: a function of the connection would be missing on the user's
        own ones."""
        if dialect.instant is None:
            raise UnknownStore(
                f"the test kit keeps no time on {dialect.name}", fix="leave out join(): it is then a file of its own"
            )
        return dialect.instant(self.now)

    def statements(self, dialect: Dialect, names: TableNames) -> ClockedStatements:
        """The statements of a store whose clock this one is."""
        return ClockedStatements(self, dialect, names)


class ClockedStatements(Statements):
    """Statements that say the test's time where they would ask for the database's."""

    def __init__(self, clock: VirtualClock, dialect: Dialect, names: TableNames) -> None:
        self._now: Callable[[], str] = partial(clock.literal, dialect)
        super().__init__(replace(dialect, now=_MARK), names)

    def of(self, text: str) -> Statement:
        """A statement of the kit's own."""
        return self._load(text)

    def migrations(self) -> list[Migration]:
        return [
            replace(step, statements=[each.replace(_MARK, self._now()) for each in step.statements])
            for step in super().migrations()
        ]

    def _load(self, text: str) -> Statement:
        loaded = super()._load(text)
        return ClockedStatement(loaded, self._now) if _MARK in loaded.sql else loaded


class ClockedStatement(Statement):
    """Read anew each time it is run."""

    _text: str
    _now: Callable[[], str]

    def __init__(self, statement: Statement, now: Callable[[], str]) -> None:
        given = {"names": statement.names, "values": statement.values, "_text": statement.sql, "_now": now}
        for name, value in given.items():
            object.__setattr__(self, name, value)  # it is frozen

    @property
    def sql(self) -> str:
        return self._text.replace(_MARK, self._now())
