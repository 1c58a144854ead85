"""An outbox under examination: what its store says of the database, and what the rows say of those who deliver them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from aftercommit.config import OutboxConfig
from aftercommit.errors import OutboxError
from aftercommit.events.findings import (
    Check,
    Finding,
    LeaseHolder,
    Waiting,
    failure,
    is_usable,
    looked_at,
    ok,
    said,
    unknown,
    warning,
)
from aftercommit.events.names import route_name
from aftercommit.handlers.routing import Router
from aftercommit.ports import Diagnosis, EventStore

#: Ten leases of the usual length: whoever polls has taken them over by then.
LONG_OVER: Final = timedelta(minutes=5)

#: What a fleet that keeps up never is behind.
LATE: Final = timedelta(minutes=5)

#: Done rows that are older than this are wanted by nobody, or by a retention of its own.
OLD: Final = timedelta(days=7)

#: Fewer of them do no harm.
MANY_OLD: Final = 10_000

#: More problems of one kind than people read.
SHOWN: Final = 20


class Examination:
    """Looks at one outbox. Nothing is changed by it."""

    def __init__(self, store: EventStore, router: Router, config: OutboxConfig) -> None:
        self._store = store
        self._router = router
        self._config = config

    async def findings(self) -> list[Finding]:
        diagnosis = self._store.diagnosis
        found = [await self._opened()] if diagnosis is None else list(await diagnosis.findings())
        if not is_usable(found):
            return found
        for check in self._checks(diagnosis):
            found += await looked_at(check)
        return found

    async def _opened(self) -> Finding:
        """Where the store says nothing of itself."""
        try:
            await self._store.open()
        except OutboxError as error:
            return failure("AC100", error.message, fix=error.fix)
        return ok("AC100", f"{self._store.where} could be opened, and says no more of itself")

    def _checks(self, diagnosis: Diagnosis | None) -> list[Check]:
        checks: list[Check] = [
            ("AC107", self._backlog),
            ("AC109", self._blocked),
            ("AC110", self._fleet),
        ]
        if diagnosis is not None:
            checks += [
                ("AC105", lambda: self._leases(diagnosis)),
                ("AC106", lambda: self._done(diagnosis)),
                ("AC121", lambda: self._handlers(diagnosis)),
            ]
        return checks

    async def _backlog(self) -> list[Finding]:
        backlog = await self._store.records.backlog()
        late, dead = backlog.oldest_due, backlog.dead
        waiting = f"{backlog.new + backlog.retry:,} unfinished rows"
        return [
            ok("AC107", f"{waiting}, the oldest due for {said(late)}")
            if late <= LATE
            else warning(
                "AC107",
                f"{waiting}, and the oldest has been due for {said(late)}",
                fix="see that processes that deliver are started and have handlers for it; then give them more workers",
            ),
            ok("AC108", "there are no dead letters")
            if not dead
            else warning(
                "AC108",
                f"{dead:,} dead letters",
                fix="look at them with `aftercommit dead list`; mend the cause, then retry or discard them",
            ),
        ]

    async def _blocked(self) -> list[Finding]:
        if not self._config.ordered or self._config.on_dead != "block":
            return []
        keys = await self._store.records.blocked(SHOWN)
        return [
            failure(
                "AC109",
                f"the key {each.key} stands still behind the dead {each.event_type} {each.event_id}",
                fix=f"aftercommit dead retry {each.event_id}, or discard it",
            )
            for each in keys
        ] or [ok("AC109", "no key stands still behind a dead event")]

    async def _fleet(self) -> list[Finding]:
        membership = self._store.membership
        if not self._config.ordered or membership is None:
            return []
        members = (await membership.view()).members
        silent = [each for each in members if each.silent_for > self._config.stale_timeout.total_seconds()]
        living = len(members) - len(silent)
        if living:
            return [ok("AC110", f"instances that are alive: {living}")]
        return [warning("AC110", "no instance is alive, so nothing is delivered", fix="start one: aftercommit run …")]

    async def _leases(self, diagnosis: Diagnosis) -> list[Finding]:
        holders = await diagnosis.holders(LONG_OVER)
        return lease_findings(holders, await self._living())

    async def _living(self) -> set[str] | None:
        """Who beats; None where nobody has to."""
        membership = self._store.membership
        if not self._config.ordered or membership is None:
            return None
        limit = self._config.stale_timeout.total_seconds()
        return {each.id for each in (await membership.view()).members if each.silent_for <= limit}

    async def _done(self, diagnosis: Diagnosis) -> list[Finding]:
        age = OLD if self._config.purge_retention is None else max(OLD, 2 * self._config.purge_retention)
        old = await diagnosis.count_done_before(age, MANY_OLD)
        if old < MANY_OLD:
            return [ok("AC106", f"done rows older than {said(age)}: {old:,}")]
        return [
            warning(
                "AC106",
                f"{MANY_OLD:,} done rows or more are older than {said(age)}, and nobody purges them",
                fix='set purge_retention="7d" where events are delivered, delete_completed=True, or run '
                "`aftercommit purge --older-than 7d`",
            )
        ]

    async def _handlers(self, diagnosis: Diagnosis) -> list[Finding]:
        if not self._router:
            return [unknown("AC121", "no handlers are known here; name the program's outbox as module:attribute")]
        waiting = await diagnosis.waiting(1000)
        lost = [each for each in waiting if not self._router.knows(*_route(each))]
        return [self._lost(each) for each in lost[:SHOWN]] or [ok("AC121", "every row that waits has a handler here")]

    def _lost(self, waiting: Waiting) -> Finding:
        name = route_name(waiting.aggregate_type, waiting.event_type)
        near = self._router.nearest(*_route(waiting))
        hint = f"; the closest is {near!r}" if near else ""
        if waiting.handler_id:
            what = f"no handler is called {waiting.handler_id!r}, for which {waiting.count:,} rows of {name} wait{hint}"
            return failure("AC121", what, fix=f'if it was renamed: aliases=["{waiting.handler_id}"]')
        what = f"no listener or handler takes {name}, of which {waiting.count:,} rows wait{hint}"
        return failure("AC121", what, fix="register one where events are delivered")


def lease_findings(holders: Sequence[LeaseHolder], living: set[str] | None) -> list[Finding]:
    """`living`: who beats, where holders of leases have to."""
    found = [
        warning(
            "AC105",
            f"{each.over:,} leases of {each.owner} are over, the first for {said(each.over_for)}, and nobody has taken "
            "them",
            fix="start processes that deliver, with the poller enabled; their first look takes them over",
        )
        for each in holders
        if each.over
    ]
    for each in holders:
        if living is not None and each.owner not in living and not each.over and each.held_for > LONG_OVER:
            found.append(
                warning(
                    "AC105",
                    f"{each.count:,} leases are held for {said(each.held_for)} by {each.owner}, which is no living "
                    "instance",
                    fix="if no drain() is under way, they are taken over when they end; a shorter lock_timeout is "
                    "sooner",
                )
            )
    return found[:SHOWN] or [ok("AC105", f"leases that stand: {sum(each.count for each in holders):,}")]


def _route(waiting: Waiting) -> tuple[str, str, str]:
    return waiting.handler_id, waiting.aggregate_type, waiting.event_type
