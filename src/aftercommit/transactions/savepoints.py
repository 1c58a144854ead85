"""Savepoints that the user names: blocks of a transaction, as a nested `outbox.transaction()` is one."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Self

from aftercommit.errors import InvalidOption, NotInTransaction, UnsupportedTransaction
from aftercommit.events.names import shown

if TYPE_CHECKING:
    from aftercommit.ports import Transactional

#: Savepoints without a name are called so, with a number.
_OURS: Final = "aftercommit_"

#: SQL Server takes no more, and cuts off the rest of some without a word.
_LONGEST: Final = 32

_NAME: Final = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{_LONGEST - 1}}}")


class HasSavepoints:
    """The part of a transaction that makes blocks of it."""

    outbox: object
    _store: Transactional
    _runtime: Any
    #: As it is called in the database; only one that the user has named is called before it begins.
    _savepoint: str
    #: The transaction that it is a block of, where the user has said so.
    _within: Any = None

    @abstractmethod
    def is_here(self) -> bool:
        """Open, and opened by the thread or task that asks."""

    def savepoint(self, name: str | None = None) -> Self:
        """A block in this transaction, called so in the database: at its end it becomes a part of what is around it; an
        error, or its rollback(), undoes what it did, its events among it.

        It is a nested `outbox.transaction()` that has a name, of letters, digits and underscores.
        """
        called = "" if name is None else _checked(name)
        self._here()
        if not self._store.capabilities.has_savepoints:
            raise UnsupportedTransaction(
                f"{self._store.where} has no savepoints", fix="one outbox.transaction() around all of the work"
            )
        block = type(self)(self.outbox, self._store, self._runtime)  # type: ignore[call-arg]
        block._savepoint, block._within = called, self
        return block

    def _here(self) -> Any:
        """Itself, open, in the thread or task that opened it."""
        if not self.is_here():
            raise NotInTransaction(
                "the transaction has ended, or was opened by another thread or task",
                fix=f"{self._store.colour.block} tx.savepoint(): … inside its block, where it was opened",
            )
        return self


def refuse_taken(name: str, open_ones: Iterable[str]) -> None:
    """A database may forget the one around it, or find the wrong one of the two; some pass over case."""
    if name and name.lower() in map(str.lower, open_ones):
        raise InvalidOption(
            f"a savepoint {name!r} is open around this one", fix="give the inner one another name, or none"
        )


def _checked(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name.lower().startswith(_OURS):
        raise InvalidOption(
            f"the name of a savepoint is {shown(name)}",
            fix=f"use letters, digits and underscores, not starting with a digit nor with {_OURS}, {_LONGEST} "
            "characters at most; or give it no name",
        )
    return name
