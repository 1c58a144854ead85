"""Statements of ours that psycopg has prepared on a connection, sent past its cursors: a cursor finds out anew what
each parameter is, and which statement this is, which takes as long as all that the outbox does for a write."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, Final

from psycopg.adapt import Dumper
from psycopg.pq import PipelineStatus, TransactionStatus

_IN_TRANSACTION: Final = int(TransactionStatus.INTRANS)
_NO_PIPELINE: Final = int(PipelineStatus.OFF)


class Text(bytes):
    """A value as the server reads it from text, whatever its type is there."""


class _TextDumper(Dumper):
    oid = 0  # the server finds the type out from the statement

    def dump(self, obj: Text) -> bytes:
        return bytes(obj)


def texts_of(raw: Any, parameters: Sequence[object]) -> list[bytes | None] | None:
    """The parameters as text; None where one has no such form, or the connection speaks another encoding."""
    if raw.pgconn.parameter_status(b"client_encoding") != b"UTF8":
        return None
    texts: list[bytes | None] = []
    for value in parameters:
        if isinstance(value, str) and "\0" not in value:  # it would end there
            texts.append(value.encode())
        elif value is None:
            texts.append(None)
        elif type(value) is int:
            texts.append(b"%d" % value)
        elif isinstance(value, datetime):
            texts.append(value.isoformat().encode())
        else:
            return None
    return texts


def for_cursor(cursor: Any, texts: Sequence[bytes | None]) -> list[Text | None]:
    """The same for a cursor of ours, which prepares the statement for texts when it has seen it often enough."""
    cursor.adapters.register_dumper(Text, _TextDumper)
    return [None if text is None else Text(text) for text in texts]


def name_of(raw: Any, sql: str) -> bytes | None:
    """What psycopg calls the statement that it has prepared; None when it has not, when it has thrown it away, or when
    a cursor has more to do: in a pipeline, or before the first statement of a transaction."""
    pgconn, manager = raw.pgconn, getattr(raw, "_prepared", None)
    if (
        pgconn.transaction_status != _IN_TRANSACTION
        or pgconn.pipeline_status != _NO_PIPELINE
        or getattr(manager, "prepare_threshold", None) is None
    ):
        return None
    names: Any = getattr(manager, "_names", None)
    name: bytes | None = names.get(_key_of(sql)) if names else None
    if name is not None:
        names.move_to_end(_key_of(sql))  # what was not used for the longest time goes first
    return name


@cache
def _key_of(sql: str) -> tuple[bytes, tuple[int, ...]]:
    """How psycopg keeps it: with numbered parameters, and their types."""
    first, *others = sql.split("%s")
    return (
        "".join([first, *[f"${number}{text}" for number, text in enumerate(others, 1)]]).encode(),
        (_TextDumper.oid,) * len(others),
    )
