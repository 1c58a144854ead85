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
from aftercommit.demo.stage import Stage
from aftercommit.demo.victim import victim

_CUSTOMERS: Final = ("Ada", "Bob", "Cleo", "Dan", "Emmy") * 4

#: How often the mail server refuses each order of the third act; one more would be too often for the last.
_REFUSALS: Final = (1, 2, 1, MAX_ATTEMPTS - 1)

_VICTIMS_ORDERS: Final = 3


class Story:
    """The walk of events through one shop."""

    def __init__(self, shop: Shop, stage: Stage, pace: Pace, *, database: Path) -> None:
        self._shop = shop
        self._stage = stage
        self._figures = stage.figures
        self._pace = pace
        self._database = database

    def play(self) -> bool:
        """All acts and the summary; whether exactly what was committed was delivered."""
        self._stage.display.say(
            "aftercommit: an order service on SQLite. It saves an event with each order, in one transaction; "
            "after the commit the event is delivered to a mailer."
        )
        for act in (self._commit, self._rollback, self._retry, self._crash, self._bury, self._replay):
            act()
            self._stage.pause(self._pace.breath)
        return self._sum_up()

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
        waits = self._figures.waits()
        self._stage.result(
            f"{len(waits)} delivered, half of them within {waits[len(waits) // 2]:.2f} ms of their commit (p50), "
            f"the slowest after {waits[-1]:.2f} ms."
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
        self._stage.result(f"Rows of that order in any table: {self._figures.traces_of_customer('Mallory')}.")
