"""What SQL text does to the transaction that it runs in."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NoReturn

from aftercommit.errors import UnsupportedTransaction

#: Statements that begin, end or split a transaction: they are for its owner to say, not for SQL text.
_CONTROL: Final = frozenset({"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVE", "SAVEPOINT", "RELEASE"})

#: Statements after which rows may be gone although the transaction goes on. Procedures may roll back, too.
_UNDOING: Final = frozenset({"ROLLBACK", "ABORT", "PREPARE", "XA", "CALL", "EXEC", "EXECUTE"})
_UNDOING_WORD: Final = re.compile(rf"\b(?:{'|'.join(sorted(_UNDOING))})\b", re.IGNORECASE)

#: The first word of a statement, behind blanks, comments, semicolons and a byte order mark.
_FIRST_WORD: Final = re.compile(r"(?:[\s;\ufeff]|--[^\n]*(?:\n|$)|/\*.*?(?:\*/|$))*+(?P<word>[A-Za-z]*)", re.DOTALL)


@lru_cache(maxsize=512)
def may_undo(sql: str) -> bool:
    """Whether rows that are in the transaction may be gone after it. A literal that looks like it is no harm."""
    return _first_word(sql) in _UNDOING or (";" in sql and _UNDOING_WORD.search(sql) is not None)


@lru_cache(maxsize=512)
def is_control(sql: str) -> bool:
    return _first_word(sql) in _CONTROL


def refuse_control(sql: str) -> NoReturn:
    """The outbox has to know what is committed and what is undone; it cannot when SQL text says so."""
    raise UnsupportedTransaction(
        f"tx.execute({sql.strip()[:40]!r}) would end or split the transaction unseen",
        fix="use tx.commit(), tx.rollback(), or tx.savepoint() as a block",
    )


def _first_word(sql: str) -> str:
    first = _FIRST_WORD.match(sql)
    return "" if first is None else first["word"].upper()
