"""Holders that come, stall, come back and go, in any order: the store against a model of leases."""

from __future__ import annotations

import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from aftercommit.events.claims import Claimed, Lease
from aftercommit.events.envelope import EventStatus
from aftercommit.events.outcome import DONE, RELEASE, Dead, Defer, Outcome, Release, Retry
from aftercommit.runtime.threads import run
from aftercommit.testing.kit import LEASE, event, settle, take
from tests.stores.kit import alter, insert, read, store_at

NOW = timedelta(0)
OUTCOMES = [DONE, Retry(NOW, "no"), Dead("no"), Defer(NOW), RELEASE]


class Row:
    """What the model knows of a row."""

    def __init__(self) -> None:
        self.status = EventStatus.NEW
        self.attempts = 0
        self.abandoned = 0
        #: Who holds it, by the lease as the store gave it; None when it is free.
        self.lease: Lease | None = None
        self.has_expired = False

    @property
    def is_claimable(self) -> bool:
        is_pending = self.status in (EventStatus.NEW, EventStatus.RETRY)
        return is_pending and (self.lease is None or self.has_expired)

    def settle(self, outcome: Outcome) -> None:
        self.lease = None
        match outcome:
            case Retry():
                self.status, self.attempts, self.abandoned = EventStatus.RETRY, self.attempts + 1, 0
            case Defer():
                self.status, self.abandoned = EventStatus.RETRY, 0
            case Dead():
                self.status, self.attempts, self.abandoned = EventStatus.DEAD, self.attempts + 1, 0
            case Release():
                pass
            case _:
                self.status, self.abandoned = EventStatus.DONE, 0


class Leases(RuleBasedStateMachine):
    """Every lease that was ever given stays in somebody's hands; only those that stand are worth something."""

    template: Path

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.path = Path(shutil.copy(self.template, self.folder))
        self.store: Any = store_at(self.path)
        self.rows: dict[str, Row] = {}
        self.given: list[Lease] = []

    def teardown(self) -> None:
        if hasattr(self, "store"):
            run(self.store.close())
            shutil.rmtree(self.folder)

    @rule(owner=st.sampled_from([None, "alice"]))
    def write(self, owner: str | None) -> None:
        written = event()
        run(insert(self.store, written, owner=owner))
        row = self.rows[written.event_id] = Row()
        if owner is not None:
            row.lease = Lease((written.event_id, ""), owner, 1, 0.0)
            self.given.append(row.lease)

    @rule(owner=st.sampled_from(["alice", "bob"]), limit=st.integers(1, 3))
    def claim(self, owner: str, limit: int) -> None:
        claimable = [event_id for event_id, row in self.rows.items() if row.is_claimable]
        claimed = run(take(self.store, owner, limit))
        assert len(claimed) == min(limit, len(claimable))
        for each in claimed:
            assert each.event.event_id in claimable
            self._took(each, owner)

    def _took(self, claimed: Claimed, owner: str) -> None:
        row = self.rows[claimed.event.event_id]
        is_takeover = row.lease is not None and row.lease.owner != owner
        assert claimed.is_suspect == (is_takeover or row.abandoned > 0)
        assert (claimed.attempts, claimed.abandoned) == (row.attempts, row.abandoned)
        older = [lease.epoch for lease in self.given if lease.key == claimed.lease.key]
        assert all(claimed.lease.epoch > epoch for epoch in older), "an epoch is never given twice"
        row.lease, row.has_expired = claimed.lease, False
        self.given.append(claimed.lease)

    @precondition(lambda self: self.given)
    @rule(data=st.data(), outcome=st.sampled_from(OUTCOMES))
    def report(self, data: Any, outcome: Outcome) -> None:
        lease = data.draw(st.sampled_from(self.given))
        row = self.rows[lease.key[0]]
        stands = row.lease is not None and row.lease.epoch == lease.epoch
        assert run(settle(self.store, lease, outcome)) == stands
        if stands:
            row.settle(outcome)

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def renew(self, data: Any) -> None:
        lease = data.draw(st.sampled_from(self.given))
        row = self.rows[lease.key[0]]
        stands = row.lease is not None and row.lease.epoch == lease.epoch
        assert bool(run(self.store.renew([lease], LEASE))) == stands
        if stands:
            row.has_expired = False

    @precondition(lambda self: self.given)
    @rule(data=st.data())
    def start_suspect(self, data: Any) -> None:
        lease = data.draw(st.sampled_from(self.given))
        row = self.rows[lease.key[0]]
        stands = row.lease is not None and row.lease.epoch == lease.epoch
        assert run(self.store.mark_suspect(lease)) == stands
        row.abandoned += stands

    @rule()
    def time_passes(self) -> None:
        alter(self.path, "UPDATE outbox_event SET lease_until = 0 WHERE lease_until IS NOT NULL")
        for row in self.rows.values():
            row.has_expired = row.lease is not None

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), discards=st.booleans())
    def bury_or_replay(self, data: Any, discards: bool) -> None:
        event_id = data.draw(st.sampled_from(sorted(self.rows)))
        row = self.rows[event_id]
        records = self.store.records
        changed = run(records.discard(event_id, None, "") if discards else records.replay(event_id, None))
        assert changed == (row.status is EventStatus.DEAD)
        if changed and discards:
            row.status = EventStatus.DONE
        elif changed:
            row.status, row.attempts, row.abandoned = EventStatus.NEW, 0, 0

    @invariant()
    def the_table_is_as_the_model(self) -> None:
        if not hasattr(self, "path"):
            return
        found = {
            row["event_id"]: (row["status"], row["attempts"], row["abandoned"], row["locked_by"])
            for row in read(self.path, "SELECT * FROM outbox_event")
        }
        expected = {
            event_id: (row.status, row.attempts, row.abandoned, row.lease.owner if row.lease else None)
            for event_id, row in self.rows.items()
        }
        assert found == expected


def test_only_a_lease_that_stands_changes_a_row(tmp_path: Path) -> None:
    """Promises 4, 4a and 7: in any order of writes, claims, stalls, reports, renewals and replays."""
    template = tmp_path / "outbox.db"
    store = store_at(template)
    run(store.open())
    run(store.close())
    Leases.template = template
    run_state_machine_as_test(
        Leases,
        settings=settings(
            max_examples=25,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
