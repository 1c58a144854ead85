"""`manage.py aftercommit run | status | dead | purge`."""

from __future__ import annotations

import signal
from argparse import ArgumentParser
from contextlib import ExitStack
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from aftercommit.django.conf import aliases
from aftercommit.django.outboxes import DjangoOutbox, outbox_for
from aftercommit.errors import OutboxError
from aftercommit.runtime.threads import ThreadRuntime, run


class Command(BaseCommand):
    """Deliver events, look at them, and clean up behind them."""

    help = "Deliver the events of the outbox, look at them, and clean up behind them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        steps = parser.add_subparsers(dest="step", required=True)
        deliver = steps.add_parser("run", help="deliver until this process is told to stop")
        deliver.add_argument("--once", action="store_true", help="deliver what is due, then end")
        steps.add_parser("status", help="what waits in the table")
        dead = steps.add_parser("dead", help="list dead events, replay or discard them")
        dead.add_argument("--limit", type=int, default=100, help="how many are listed")
        choice = dead.add_mutually_exclusive_group()
        choice.add_argument("--replay", metavar="EVENT_ID", help="make it new again, with all its attempts")
        choice.add_argument("--replay-all", action="store_true", help="replay every dead event once")
        choice.add_argument("--discard", metavar="EVENT_ID", help="end it without delivering it")
        purge = steps.add_parser("purge", help="delete events that ended long ago")
        purge.add_argument("--older-than", help='such as "7d"; by default purge_retention')
        purge.add_argument("--dead", action="store_true", help="dead ones as well")
        for each in steps.choices.values():
            each.add_argument("--database", help="an alias of DATABASES; by default all of AFTERCOMMIT")

    def handle(self, *_: Any, step: str, database: str | None, **options: Any) -> None:
        try:
            outboxes = [outbox_for(alias) for alias in ([database] if database else aliases())]
            if step == "run" and not options["once"]:
                self._run(outboxes)
            else:
                for outbox in outboxes:
                    getattr(self, f"_{step}" if step != "run" else "_once")(outbox, **options)
        except OutboxError as error:
            raise CommandError(str(error)) from error

    def _run(self, outboxes: list[DjangoOutbox]) -> None:
        """Until SIGTERM or Ctrl-C; then every outbox finishes what it has begun."""
        signal.signal(signal.SIGTERM, _stop)
        try:
            with ExitStack() as stack:
                for outbox in outboxes:
                    stack.enter_context(outbox)
                self.stdout.write(f"delivering events of {', '.join(each.alias for each in outboxes)}")
                self.stdout.flush()
                run(ThreadRuntime().monitor().wait_for(lambda: False))
        except KeyboardInterrupt:
            self.stdout.write("stopped")

    def _once(self, outbox: DjangoOutbox, **_: Any) -> None:
        done = outbox.drain()
        self.stdout.write(
            f"{outbox.alias}: {done.delivered} delivered, {done.retried} to retry, {done.deferred} deferred, "
            f"{done.dead} dead"
        )

    def _status(self, outbox: DjangoOutbox, **_: Any) -> None:
        backlog = outbox.stats().backlog
        self.stdout.write(
            f"{outbox.alias}: {backlog.new} new, {backlog.retry} to retry, {backlog.dead} dead, {backlog.leased} "
            f"leased; the oldest has been due for {backlog.oldest_due.total_seconds():.0f} s"
        )

    def _dead(
        self, outbox: DjangoOutbox, *, limit: int, replay: str | None, replay_all: bool, discard: str | None, **_: Any
    ) -> None:
        if replay_all:
            self.stdout.write(f"{outbox.alias}: {outbox.dead.replay_all()} replayed")
        elif replay is not None:
            self._changed(outbox, replay, "replayed", is_done=outbox.dead.replay(replay))
        elif discard is not None:
            self._changed(outbox, discard, "discarded", is_done=outbox.dead.discard(discard, reason="by manage.py"))
        else:
            for event in outbox.dead.query(limit=limit):
                error = next(iter(event.last_error.strip().splitlines()), "")
                self.stdout.write(f"{outbox.alias}: {event.event_id} {event.event_type} {event.handler_id} {error}")

    def _changed(self, outbox: DjangoOutbox, event_id: str, what: str, *, is_done: bool) -> None:
        self.stdout.write(f"{outbox.alias}: {event_id} {f'is {what}' if is_done else 'is not dead'}")

    def _purge(self, outbox: DjangoOutbox, *, older_than: str | None, dead: bool, **_: Any) -> None:
        self.stdout.write(f"{outbox.alias}: {outbox.purge(older_than, dead=dead or None)} purged")


def _stop(*_: Any) -> None:
    raise KeyboardInterrupt
