"""A Redis or Valkey server under examination: what it keeps, what it drops, and what its rows say."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import Any, Final

from aftercommit.errors import OutboxError
from aftercommit.events.findings import Finding, LeaseHolder, Waiting, failure, looked_at, ok, said, unknown, warning
from aftercommit.stores.redis.durability import facts_of, what_a_restart_loses, what_is_dropped
from aftercommit.stores.redis.server import Server
from aftercommit.stores.sql.diagnosis import EPOCH, away, clock_finding
from aftercommit.stores.sql.rows import to_micros

#: Rows that a script looks at in one go, and how often: more of them would keep the server for long.
PAGE: Final = 500
PAGES: Final = 100

#: The part of its memory behind which a server that drops nothing soon refuses writes.
NEARLY_FULL: Final = 0.9


@dataclass(eq=False)
class RedisDiagnosis:
    """The port."""

    _server: Server

    async def findings(self) -> list[Finding]:
        began = perf_counter()
        try:
            info, save = await self._server.link.call((b"INFO",), (b"CONFIG", b"GET", b"save"))
        except Exception as error:
            return [self._away(error)]
        if isinstance(info, Exception) and not _is_forbidden(info):
            return [self._away(info)]
        facts = facts_of(info)
        version = facts.get("valkey_version") or facts.get("redis_version") or "unknown"
        taken = said(timedelta(seconds=perf_counter() - began))
        found = [ok("AC100", f"{self._server.where} answers in {taken} (version {version})")]
        found += await looked_at(("AC101", self._fits))
        found += await looked_at(("AC104", self._clock))
        if not facts:
            return [*found, *(unknown(code, "INFO is forbidden") for code in ("AC111", "AC116", "AC122"))]
        return [*found, *settings_findings(facts, save, self._server.where)]

    async def holders(self, over_for: timedelta) -> list[LeaseHolder]:
        rows = await self._server.run("holders", to_micros(over_for), PAGE * 10)
        return [
            LeaseHolder(owner.decode(), count, over, timedelta(microseconds=since), timedelta(microseconds=held))
            for owner, count, over, since, held in rows
        ]

    async def waiting(self, limit: int) -> list[Waiting]:
        counts: Counter[tuple[str, str, str]] = Counter()
        behind: Any = b""
        for _ in range(PAGES):
            behind, *groups = await self._server.run("waiting", behind, PAGE)
            for *names, count in groups:
                handler_id, aggregate_type, event_type = (name.decode() for name in names)
                counts[handler_id, aggregate_type, event_type] += count
            if behind is None:
                break
        return [Waiting(*names, count) for names, count in counts.most_common(limit)]

    async def count_done_before(self, older_than: timedelta, limit: int) -> int:
        return int(await self._server.run("count_done_before", to_micros(older_than), limit))

    def _away(self, error: Exception) -> Finding:
        try:
            self._server.explain(error)
        except OutboxError as ours:
            return away(self._server.where, ours)
        return away(self._server.where, error)

    async def _fits(self) -> list[Finding]:
        try:
            layout = await self._server.examined()
        except OutboxError as error:
            return [failure("AC101", error.message, fix=error.fix)]
        return [ok("AC101", f"the keys of {self._server.names.table} have the layout {layout}, as this release")]

    async def _clock(self) -> list[Finding]:
        before = datetime.now(UTC)
        (time,) = await self._server.link.call((b"TIME",))
        if isinstance(time, Exception):
            raise time
        database = EPOCH + timedelta(seconds=int(time[0]), microseconds=int(time[1]))
        return [clock_finding(database, before, datetime.now(UTC))]


def settings_findings(facts: dict[str, str], save: Any, where: str) -> list[Finding]:
    return [_writable(facts, where), *_kept(facts, save, where), *_dropped(facts, where)]


def _writable(facts: dict[str, str], where: str) -> Finding:
    if facts.get("role") != "slave":
        return ok("AC116", "the server takes writes")
    return failure("AC116", f"{where} is a replica and takes no writes", fix="point the outbox at the primary")


def _kept(facts: dict[str, str], save: Any, where: str) -> list[Finding]:
    found = []
    if facts.get("aof_last_write_status", "ok") != "ok" or facts.get("rdb_last_bgsave_status", "ok") != "ok":
        found.append(
            failure(
                "AC111",
                f"the last write of {where} to its disk has failed: what it has since then is in memory only",
                fix="see the server's log; make room on its disk, or give it the right to write there",
            )
        )
    loss = what_a_restart_loses(facts, save, where)
    if loss is not None:
        fix = "CONFIG SET appendonly yes, and the same in its configuration; or durability=… over replicas"
        found.append(warning("AC111", loss, fix=fix))
    return found or [ok("AC111", f"{where} keeps every write on disk (appendonly yes)")]


def _dropped(facts: dict[str, str], where: str) -> list[Finding]:
    dropped = what_is_dropped(facts, where)
    if dropped is not None:
        fix = "CONFIG SET maxmemory-policy noeviction, and the same in its configuration; or a server of its own"
        return [failure("AC122", dropped, fix=fix)]
    used, limit = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    if limit and used > NEARLY_FULL * limit:
        return [
            warning(
                "AC122",
                f"{where} uses {used / limit:.0%} of its memory ({used // 1024**2:,} MB), and refuses writes when it "
                "is full",
                fix="raise maxmemory, purge done rows (delete_completed, purge_retention), or deliver faster",
            )
        ]
    return [ok("AC122", "the server drops no keys of its own accord")]


def _is_forbidden(error: Exception) -> bool:
    return "NOPERM" in str(error) or type(error).__name__ == "NoPermissionError"
