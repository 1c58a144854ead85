"""`aftercommit init`: a program to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from aftercommit.cli.command import Command, this_call
from aftercommit.cli.exits import Refused
from aftercommit.cli.output import Output
from aftercommit.errors import SchemaMissing
from aftercommit.events.redact import redact
from aftercommit.settings import FILE

_MODULE: Final = "outbox_app"

_SETTINGS: Final = """\
# Settings of the outbox. Environment variables (AFTERCOMMIT_URL, AFTERCOMMIT_WORKER_COUNT …) win over them.
app = "{module}:outbox"
{url}
"""

_EXAMPLE: Final = '''\
"""The outbox of this program, and a handler of its events."""

from dataclasses import dataclass

from aftercommit import Outbox

outbox = Outbox.configured()  # as aftercommit.toml and AFTERCOMMIT_* say


@dataclass
class OrderPlaced:
    total: int


@outbox.handler
def send_receipt(event: OrderPlaced) -> None:
    print("receipt over", event.total)


def place_order(total: int) -> None:
    """The event is written in the transaction of the order: both are there, or neither is."""
    with outbox.transaction() as tx:
        tx.execute("CREATE TABLE IF NOT EXISTS orders (total INTEGER)")
        tx.execute("INSERT INTO orders (total) VALUES (?)", (total,))
        outbox.write(OrderPlaced(total))
'''


@click.command(cls=Command)
@click.option("--url", default="sqlite:///outbox.db", show_default=True, help="The database.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
def init(*, url: str, force: bool) -> None:
    """Write a configuration file and an example of a handler here.

    The tables of an embedded database are made as well.
    """
    output, folder = this_call().output, Path.cwd()
    files = {folder / FILE: _SETTINGS.format(module=_MODULE, url=_url_line(url)), folder / f"{_MODULE}.py": _EXAMPLE}
    there = [path.name for path in files if path.exists()]
    if there and not force:
        raise Refused(f"{' and '.join(there)} would be overwritten; add --force to do that")
    has_tables = _make_tables(url)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        output.line(path.name)
    _say_next(output, url, has_tables=has_tables)


def _url_line(url: str) -> str:
    if _is_secret(url):
        return "# url: it has a password, which belongs in the environment: AFTERCOMMIT_URL"
    return f'url = "{url}"'


def _is_secret(url: str) -> bool:
    return redact(url) != url


def _make_tables(url: str) -> bool:
    """Whether they are there. A store that makes none unasked is left to whoever is in charge of its server."""
    from aftercommit.outbox import Outbox  # noqa: PLC0415  (the engine is loaded when there is something to do)

    outbox = Outbox(url)
    try:
        outbox.stats()
    except SchemaMissing:
        return False
    finally:
        outbox.close()
    return True


def _say_next(output: Output, url: str, *, has_tables: bool) -> None:
    output.say("Next:")
    if _is_secret(url):
        output.say("  export AFTERCOMMIT_URL=…      # the URL with its password")
    if not has_tables:
        output.say("  aftercommit migrate up        # make the tables")
    output.say("  aftercommit send OrderPlaced '{\"total\": 4200}'")
    output.say("  aftercommit run               # deliver, until Ctrl-C")
