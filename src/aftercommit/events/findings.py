"""What an examination of an outbox and its database finds: what is well, what will hurt, and how to mend it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

import msgspec

from aftercommit.errors import OutboxError
from aftercommit.events.redact import error_text


class Level(Enum):
    """How much a finding matters."""

    OK = "ok"
    #: It works, and will hurt one day.
    WARNING = "warning"
    #: It hurts now.
    FAILURE = "failure"
    #: It could not be looked at, and the finding says why.
    UNKNOWN = "unknown"


#: Every check by its code, which stays the same from release to release. docs/doctor.md tells of each.
CHECKS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "AC100": "the database can be reached",
        "AC101": "the schema fits this release",
        "AC102": "all tables are there",
        "AC103": "all indexes are there and valid",
        "AC104": "the clocks of database and host agree",
        "AC105": "leases are taken over when they end",
        "AC106": "done rows are purged",
        "AC107": "events are delivered soon",
        "AC108": "there are no dead letters",
        "AC109": "no key stands still behind a dead event",
        "AC110": "the fleet is alive",
        "AC111": "a commit that was answered stays",
        "AC112": "no replication slot is left behind",
        "AC113": "no transaction is open for long",
        "AC114": "vacuum keeps up",
        "AC115": "LISTEN works",
        "AC116": "the database takes writes",
        "AC117": "SQLite writes ahead (WAL)",
        "AC118": "the file is on a local disk",
        "AC119": "the version of the database is current enough",
        "AC120": "the binary log takes what the outbox does",
        "AC121": "every row that waits has a handler",
        "AC122": "the server drops no keys",
    }
)


class Finding(msgspec.Struct, frozen=True):
    """One answer of `outbox.diagnose()`."""

    #: Of the check, whatever its answer.
    code: str
    level: Level
    #: With the values. No secrets.
    what: str
    #: What to do; empty where all is well.
    fix: str = ""
    #: A statement that does it, for somebody who may.
    sql: str | None = None

    @property
    def is_problem(self) -> bool:
        return self.level in (Level.WARNING, Level.FAILURE)

    def __str__(self) -> str:
        advice = f"\n  Fix: {self.fix}" if self.fix else ""
        return f"{self.level.value}: [{self.code}] {self.what}{advice}"


def ok(code: str, what: str) -> Finding:
    return Finding(code, Level.OK, what)


def warning(code: str, what: str, *, fix: str, sql: str | None = None) -> Finding:
    return Finding(code, Level.WARNING, what, fix, sql)


def failure(code: str, what: str, *, fix: str, sql: str | None = None) -> Finding:
    return Finding(code, Level.FAILURE, what, fix, sql)


def unknown(code: str, why: str) -> Finding:
    return Finding(code, Level.UNKNOWN, f"{CHECKS[code]}: not checked, {why}")


#: One thing to look at: the code that its findings have, and how.
Check = tuple[str, Callable[[], Coroutine[Any, Any, list[Finding]]]]


async def looked_at(check: Check) -> list[Finding]:
    """A check that fails, for whatever reason, says so and leaves the others alone."""
    code, look = check
    try:
        return await look()
    except Exception as error:
        return [unknown(code, error.message if isinstance(error, OutboxError) else error_text(error))]


def is_usable(findings: Sequence[Finding]) -> bool:
    """Whether the tables can be asked anything."""
    return not any(each.level is Level.FAILURE and each.code in ("AC100", "AC101") for each in findings)


def said(time: timedelta) -> str:
    """A time as people say it, in its two largest units."""
    seconds = max(0.0, time.total_seconds())
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    units = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))
    parts, rest = [], int(seconds)
    for name, size in units:
        if rest >= size:
            parts.append(f"{rest // size}{name}")
            rest %= size
    return " ".join(parts[:2])


class LeaseHolder(msgspec.Struct, frozen=True):
    """Somebody who has leases on unfinished rows."""

    owner: str
    count: int
    #: How many of them were over long ago.
    over: int
    #: For how long the first of them has been over; below zero, or zero: it stands.
    over_for: timedelta
    #: How long ago the oldest of them was taken.
    held_for: timedelta


class Waiting(msgspec.Struct, frozen=True):
    """Unfinished rows that wait for the same receivers."""

    handler_id: str
    aggregate_type: str
    event_type: str
    count: int
