"""The acts of the demo, in order. Each says what it is about to show, does it, and tells what the tables say then."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from aftercommit import EventStatus
from aftercommit.demo.display import Tone
from aftercommit.demo.pace import Pace
from aftercommit.demo.shop import MAX_ATTEMPTS, PaymentDeclined, Shop
from aftercommit.demo.stage import Overdue, Stage
from aftercommit.demo.victim import victim

_CUSTOMERS: Final = ("Ada", "Bob", "Cleo", "Dan", "Emmy") * 4

#: How often the mail server times out for each order of the third act; one more would be too often for the last.
_TIMEOUTS: Final = (1, 2, 1, MAX_ATTEMPTS - 1)

_VICTIMS_ORDERS: Final = 3


class Story:
    """The walk of events through one shop."""

    def __init__(self, shop: Shop, stage: Stage, pace: Pace, *, database: Path) -> None:
        self._shop = shop
        self._stage = stage
        self._figures = stage.figures
        self._pace = pace
        self._database = database
        self._faults: list[str] = []

    def play(self) -> bool:
        """All acts and the summary; whether exactly what was committed was delivered."""
        self._stage.display.say(
            "aftercommit: an order service on SQLite. It saves an event with each order, in one transaction; "
            "after the commit the event is delivered to a mailer."
        )
        try:
            for act in (self._commit, self._rollback, self._retry, self._crash, self._bury, self._replay):
                act()
                self._stage.pause(self._pace.breath)
        except Overdue as overdue:
            self._faults.append(str(overdue))
        self._sum_up()
        self._check()
        return not self._faults

    def _commit(self) -> None:
        self._stage.act(
            "Commit",
            f"{len(_CUSTOMERS)} customers order. Each order commits together with its event, and the commit itself "
            "wakes the worker that delivers it.",
        )
        for customer in _CUSTOMERS:
            self._shop.place(customer)
            self._stage.pause(self._pace.order)
        self._until_all_ended()
        count, median, longest = self._figures.waits()
        self._stage.result(
            f"{count} delivered, half of them within {median:.2f} ms of their commit (p50), "
            f"the slowest after {longest:.2f} ms."
        )

    def _rollback(self) -> None:
        self._stage.act(
            "Rollback",
            "A payment is declined after the order and its event were written: the rollback takes both away.",
        )
        try:
            self._shop.place("Mallory", pays=False)
        except PaymentDeclined as declined:
            self._stage.display.note(f"{declined}: rolled back", tone=Tone.WARNING)
            self._stage.pause(self._pace.breath)
            traces = self._figures.traces_of(declined.number)
            self._stage.result(f"Rows of orders, events and deliveries that know of order {declined.number}: {traces}.")
            if traces:
                self._faults.append(f"rolled back, and still there: order {declined.number}")

    def _retry(self) -> None:
        self._stage.act(
            "Retry",
            "The mail server times out now and then. A failed attempt is counted, and the event comes back after a "
            "delay that doubles each time.",
        )
        before = self._figures.summary()
        for customer, timeouts in zip(_CUSTOMERS, _TIMEOUTS, strict=False):
            self._shop.place(customer, timeouts=timeouts)
        self._until_all_ended()
        after = self._figures.summary()
        done, failed = (after[name] - before[name] for name in ("events DONE", "failed calls"))
        self._stage.result(f"{done} more delivered, after {failed} failed attempts.")

    def _crash(self) -> None:
        self._stage.act(
            "Crash",
            f"A second process commits {_VICTIMS_ORDERS} orders and is killed before it delivers them. Their events "
            "are safe in the table, leased to the dead process.",
        )
        process = self._kill_after_commit()
        killed_at = time.monotonic()
        leased, until = self._figures.leases_of(process)
        rest = max(0.0, until - time.time())
        self._stage.display.note(
            f"process {process} is dead; {leased} events are leased to it for another {rest:.1f} s",
            tone=Tone.BAD,
        )
        self._until_all_ended()
        taken_over = self._figures.taken_over_from(process)
        self._stage.result(
            f"{time.monotonic() - killed_at:.1f} s later the lease was over: the poller of process {os.getpid()} found "
            f"{taken_over} events of process {process} and delivered them."
        )
        if taken_over != _VICTIMS_ORDERS:
            self._faults.append(f"{_VICTIMS_ORDERS} events should have been taken over, not {taken_over}")

    def _kill_after_commit(self) -> int:
        with victim(self._database, orders=_VICTIMS_ORDERS, pace=self._pace) as child:
            self._stage.display.note(f"process {child.pid} starts")
            self._stage.wait(lambda: self._figures.placed_by(child.pid) == _VICTIMS_ORDERS or child.poll() is not None)
            if child.poll() is not None:
                raise ChildProcessError(f"the second process ended by itself, with exit code {child.returncode}")
            child.kill()
        self._stage.display.note(
            f"process {child.pid} committed {_VICTIMS_ORDERS} orders and got SIGKILL", tone=Tone.BAD
        )
        return child.pid

    def _bury(self) -> None:
        self._stage.act(
            "Dead letter",
            "An order without items meets a bug: the mailer divides by their number. "
            f"After {MAX_ATTEMPTS} attempts the event is DEAD and kept, with its error, for people to look at.",
        )
        self._shop.place("Zoe", items=0)
        self._until_all_ended()
        for dead in self._shop.inspect_dead():
            self._stage.result(f"outbox.dead.query(): {dead.key}, {dead.attempts} attempts, {dead.last_error}")

    def _replay(self) -> None:
        self._stage.act(
            "Replay", "The bug is fixed. A replay makes the dead event NEW again, with its full number of attempts."
        )
        self._shop.mailer.has_bug = False
        self._shop.replay_dead()
        self._until_all_ended()
        self._stage.result(f"Delivered. {self._figures.by_status()[EventStatus.DEAD]} events are dead now.")

    def _until_all_ended(self) -> None:
        self._stage.wait(lambda: self._figures.unfinished() == 0)

    def _sum_up(self) -> None:
        say = self._stage.display.say
        say("")
        say("Summary, read from the tables", tone=Tone.STRONG)
        for name, number in self._figures.summary().items():
            say(f"   {number:>3}  {name}")

    def _check(self) -> None:
        suspects = {
            "committed but not delivered": self._figures.lost(),
            "delivered but not committed": self._figures.invented(),
            "not marked DONE": self._figures.not_done(),
        }
        self._faults += [f"{fault}: orders {orders}" for fault, orders in suspects.items() if orders]
        self._stage.display.say("")
        for fault in self._faults:
            self._stage.display.say(f"   FAILED: {fault}", tone=Tone.BAD)
        if not self._faults:
            self._stage.display.say("   OK: every committed order was delivered, and nothing else was.", tone=Tone.GOOD)
