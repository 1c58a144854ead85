"""What a transactional handler may take as its tx: told by its annotation, without an import of whose it is."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple


class TxKind(Enum):
    """Whose transaction it is."""

    #: The outbox's own.
    OWN = "Transaction"
    #: SQLAlchemy's.
    SESSION = "Session"
    ASYNC_SESSION = "AsyncSession"


_KINDS: Final = {
    ("aftercommit.transactions.owned", "OwnedTransaction"): TxKind.OWN,
    ("sqlalchemy.orm.session", "Session"): TxKind.SESSION,
    ("sqlalchemy.ext.asyncio.session", "AsyncSession"): TxKind.ASYNC_SESSION,
}


class TxParameter(NamedTuple):
    """How a handler declares it, and where: the number of its parameter, which counts from 0."""

    annotation: Any
    place: int


def kind_of_tx(annotation: Any) -> TxKind | None:
    """None for what is no transaction."""
    bases = annotation.__mro__ if isinstance(annotation, type) else ()
    return next((_KINDS[home] for each in bases if (home := (each.__module__, each.__name__)) in _KINDS), None)
