"""`aftercommit healthcheck`: asks the probes of a worker, for containers that have no other program to do it."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException
from typing import Final

import click

from aftercommit.cli.addresses import Address, address
from aftercommit.cli.command import Command, this_call
from aftercommit.cli.exits import Exit
from aftercommit.events.redact import error_text

_PATHS: Final = {"live": "/livez", "ready": "/readyz", "started": "/startupz"}


@click.command(cls=Command)
@click.argument("probe", type=click.Choice(list(_PATHS)))
@click.option(
    "--http",
    type=address,
    metavar="HOST:PORT",
    default="127.0.0.1:9100",
    show_default=True,
    help="Where a worker serves its probes.",
)
@click.option(
    "--timeout", type=float, default=3.0, show_default=True, metavar="SECONDS", help="How long to wait for it."
)
def healthcheck(*, probe: str, http: Address, timeout: float) -> int:
    """Ask a running worker whether it is live, ready or started.

    0 when it is, 1 when it is not, or does not answer.
    """
    connection = HTTPConnection(http.host, http.port, timeout=timeout)
    try:
        connection.request("GET", _PATHS[probe])
        answer = connection.getresponse()
        text = answer.read(10_000).decode(errors="replace").strip()
    except (OSError, HTTPException) as error:
        this_call().output.complain(f"{http} does not answer: {error_text(error)}")
        return Exit.PROBLEM
    finally:
        connection.close()
    this_call().output.line(text or f"{answer.status}")
    return Exit.OK if answer.status == 200 else Exit.PROBLEM
