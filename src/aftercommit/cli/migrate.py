"""`aftercommit migrate`: the schema, for people and for pipelines."""

from __future__ import annotations

from typing import Any

import click

from aftercommit.cli.command import Group, json_option, yes_option
from aftercommit.cli.exits import Exit
from aftercommit.cli.session import Session, as_made
from aftercommit.cli.targets import takes_outbox


@click.group(cls=Group)
def migrate() -> None:
    """Make and upgrade the tables, or tell how they are."""


@migrate.command()
@takes_outbox(positional=True)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@yes_option
def up(*, session: Session, dry_run: bool, yes: bool) -> None:
    """Create the tables, or bring them to what this release needs."""
    status = _status(session)
    if status.fits and not status.is_behind:
        session.output.line(f"nothing to do: the schema is at version {status.version}")
        return
    what = f"from version {status.version} to {status.needed}" if status.version else f"as version {status.needed}"
    if dry_run:
        session.output.line(f"would make the schema {what}")
        return
    if status.version:  # a table that nobody has yet harms nobody
        session.output.confirm(f"Will upgrade the schema {what}, in {session.outbox._store.where}.", yes=yes)
    session.ask(lambda outbox: outbox.create_schema())
    session.output.line(f"the schema is at version {_status(session).version}")


@migrate.command("status")
@takes_outbox(positional=True)
@json_option
def show_status(*, session: Session, as_json: bool) -> None:
    """Tell the version of the schema, what this release needs, and what is missing."""
    _tell(session, as_json=as_json)


@migrate.command()
@takes_outbox(positional=True)
@json_option
def check(*, session: Session, as_json: bool) -> Exit:
    """The same, and end with 1 unless the schema is as this release needs it: for a pipeline."""
    status = _tell(session, as_json=as_json)
    return Exit.OK if status.fits and not status.missing else Exit.PROBLEM


@migrate.command()
@takes_outbox(positional=True)
@click.option("--from", "from_version", type=click.IntRange(0), default=0, help="The version that is there; 0: none.")
@click.option("--to", "to_version", type=click.IntRange(0), help="The version to reach; by default the newest.")
def sql(*, session: Session, from_version: int, to_version: int | None) -> None:
    """Print the script that makes the schema, or leads from one version to another. Asks no database."""
    print(session.outbox._store.schema_sql(from_version, to_version), end="")


def _status(session: Session) -> Any:
    as_made(session)
    return session.ask(lambda outbox: outbox.schema_status())


def _tell(session: Session, *, as_json: bool) -> Any:
    status = _status(session)
    problem = status.problem
    if as_json:
        session.output.json(
            "migrate/1",
            version=status.version,
            needed=status.needed,
            fits=status.fits,
            is_behind=status.is_behind,
            missing=status.missing,
            problem=None if problem is None else problem.message,
            fix=None if problem is None else problem.fix,
        )
        return status
    session.output.line(f"version {status.version}, this release needs {status.needed}")
    for each in status.missing:
        session.output.line(f"missing: {each}")
    if problem is not None:
        session.output.line(problem.message)
        session.output.line(f"  fix: {problem.fix}")
    return status
