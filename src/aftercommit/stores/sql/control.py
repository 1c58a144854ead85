"""Statements that begin, end or split a transaction: they are for its owner to say, not for SQL text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from aftercommit.errors import UnsupportedTransaction

_TRANSACTION_WORDS: Final = frozenset({"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVE", "SAVEPOINT", "RELEASE"})

#: The first word of a statement, behind blanks, comments, semicolons and a byte order mark.
_FIRST_WORD: Final = re.compile(r"(?:[\s;\ufeff]|--[^\n]*(?:\n|$)|/\*.*?(?:\*/|$))*+(?P<word>[A-Za-z]*)", re.DOTALL)


@lru_cache(maxsize=512)
def is_transaction_control(sql: str) -> bool:
    first = _FIRST_WORD.match(sql)
    return first is not None and first["word"].upper() in _TRANSACTION_WORDS


def refuse_transaction_control(sql: str) -> None:
    """The outbox has to know what is committed and what is undone; it cannot when SQL text says so."""
    if is_transaction_control(sql):
        raise UnsupportedTransaction(
            f"tx.execute({sql.strip()[:40]!r}) would end or split the transaction unseen",
            fix="use tx.commit(), tx.rollback(), or a nested outbox.transaction() as savepoint",
        )
