"""MySQL and MariaDB under examination: what can lose commits, what the binary log cannot take, what stays open."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from aftercommit.events.findings import Check, Finding, failure, ok, said, warning
from aftercommit.stores.sql.diagnosis import SqlDiagnosis
from aftercommit.stores.sql.rows import to_micros

#: Far longer than a transaction of a program that answers people. A backup or a report may be.
LONG: Final = timedelta(minutes=10)

#: What keeps a server from taking writes.
_REFUSES: Final = ("read_only", "super_read_only", "offline_mode")


class MysqlDiagnosis(SqlDiagnosis):
    """What only MySQL and MariaDB suffer from."""

    def _of_server(self) -> list[Check]:
        return [*super()._of_server(), ("AC111", self._settings), ("AC113", self._transactions)]

    async def _settings(self) -> list[Finding]:
        return settings_findings({str(name).lower(): str(value) for name, value in await self._read("server_settings")})

    async def _transactions(self) -> list[Finding]:
        rows = await self._read("long_transactions", {"older_than": to_micros(LONG)})
        return [
            warning(
                "AC113",
                f"{who} ({state}) has been in a transaction for {said(timedelta(microseconds=int(micros)))}: InnoDB "
                "keeps every older version of rows since then, and claims step over them",
                fix="end it, and find out why it stays open",
                sql=sql,
            )
            for who, state, micros, sql in rows
        ] or [ok("AC113", f"no transaction has been open for more than {said(LONG)}")]


def settings_findings(settings: Mapping[str, str]) -> list[Finding]:
    return [*_writable(settings), *_durable(settings), *_logged(settings)]


def _writable(settings: Mapping[str, str]) -> list[Finding]:
    on = [
        name for name in ("read_only", "super_read_only", "offline_mode") if settings.get(name, "OFF").upper() != "OFF"
    ]
    if not on:
        return [ok("AC116", "the database takes writes")]
    return [
        failure(
            "AC116",
            f"the server takes no writes, or only those of administrators ({', '.join(on)})",
            fix="point the outbox at the primary",
            sql=f"SET GLOBAL {on[0]} = OFF",
        )
    ]


def _durable(settings: Mapping[str, str]) -> list[Finding]:
    flush = settings.get("innodb_flush_log_at_trx_commit", "1")
    if flush == "1":
        return [ok("AC111", "commits wait for the disk (innodb_flush_log_at_trx_commit 1)")]
    return [
        warning(
            "AC111",
            f"innodb_flush_log_at_trx_commit is {flush}: a crash of the host loses the last second of transactions "
            "that were answered, your changes and their events together",
            fix="set it to 1, unless that is meant",
            sql="SET GLOBAL innodb_flush_log_at_trx_commit = 1",
        )
    ]


def _logged(settings: Mapping[str, str]) -> list[Finding]:
    if settings.get("log_bin", "OFF").upper() in ("OFF", "0"):
        return [ok("AC120", "there is no binary log that could refuse anything")]
    if settings.get("binlog_format", "ROW").upper() == "STATEMENT":
        return [
            failure(
                "AC120",
                "binlog_format is STATEMENT, and the server refuses claims under READ COMMITTED with it",
                fix="set it to ROW or MIXED",
                sql="SET GLOBAL binlog_format = 'ROW'",
            )
        ]
    if settings.get("sync_binlog", "1") == "0":
        return [
            warning(
                "AC120",
                "sync_binlog is 0: after a crash of the host its replicas may have more, or less, than it has",
                fix="set it to 1 where replicas take over",
                sql="SET GLOBAL sync_binlog = 1",
            )
        ]
    return [ok("AC120", f"the binary log has format {settings.get('binlog_format', 'ROW')} and is synced")]
