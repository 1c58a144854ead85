"""`aftercommit run`: deliver in a process of its own, or in several."""

from __future__ import annotations

from pathlib import Path

import click

from aftercommit.cli.addresses import Address, address
from aftercommit.cli.command import Command
from aftercommit.cli.delivering import deliver, drain
from aftercommit.cli.ending import ended
from aftercommit.cli.session import Session
from aftercommit.cli.supervisor import Supervisor
from aftercommit.cli.targets import takes_outbox


@click.command(cls=Command, is_worker=True)
@takes_outbox(positional=True)
@click.option("--processes", type=click.IntRange(1), default=1, metavar="N", help="Deliver in N processes of a parent.")
@click.option("--reload", is_flag=True, help="Start again when a source file changes: for development.")
@click.option(
    "--http",
    type=address,
    metavar="HOST:PORT",
    help="Serve the probes there. Of several processes each has the next port.",
)
@click.option("--drain", "--once", "only_due", is_flag=True, help="Deliver what is due, then end.")
def run(*, session: Session, processes: int, reload: bool, http: Address | None, only_due: bool) -> int:
    """Deliver events in a process of its own.

    Until SIGTERM or Ctrl-C: then it finishes what runs, gives back the rest, and ends with 0. A second signal ends it
    at once. With --processes, a process that dies is replaced, and none outlives the parent.
    """
    if only_due:
        if processes > 1 or reload or http:
            raise click.UsageError("--drain ends by itself: it takes no --processes, --reload or --http")
        return drain(session)
    if processes == 1 and not reload:
        return deliver(session, http=http)

    def work(number: int, parent: int) -> int:
        own = None if http is None else http.next(number)
        return ended(session.call, lambda: _deliver_once(session, own, parent))

    return Supervisor(work, processes, session.output, watched=Path.cwd() if reload else None).run()


def _deliver_once(session: Session, http: Address | None, parent: int) -> int:
    with session:
        return deliver(session, http=http, parent=parent)
