"""Which outbox a command works with: one of a program (`module:attribute`), or any table that a URL leads to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import click

from aftercommit.cli.command import Call, this_call
from aftercommit.cli.session import Session
from aftercommit.errors import CannotStart

if TYPE_CHECKING:
    from aftercommit.base import OutboxBase


@dataclass(frozen=True, slots=True)
class Target:
    """What the caller named, or the settings."""

    app: str | None = None
    url: str | None = None
    table: str | None = None
    schema: str | None = None

    @property
    def place(self) -> str:
        """For messages; masked when it is said."""
        return self.app or self.url or ""

    @property
    def has_handlers(self) -> bool:
        """A table alone has none."""
        return self.app is not None


def chosen(call: Call, named: Target) -> Target:
    """What was named on the command line, else what the environment or the file says."""
    if named.app is not None and named.url is not None:
        raise click.UsageError("both an outbox (module:attribute) and --url are given: name one of them")
    if named.app is not None or named.url is not None:
        return named
    settings = call.settings
    if settings.app is not None:
        return Target(settings.app, None, named.table, named.schema)
    if settings.url is not None:
        return Target(None, settings.url, named.table, named.schema)
    raise CannotStart(
        "no outbox was named",
        fix="name it (shop:outbox), pass --url, set AFTERCOMMIT_APP or AFTERCOMMIT_URL, or write one of them in "
        "aftercommit.toml",
    )


def open_target(call: Call, target: Target, **kept: Any) -> OutboxBase:
    """The outbox, not started. A factory is called; a URL gets the options of the settings, and what is kept with the
    table."""
    if target.app is not None:
        if target.table is not None or target.schema is not None:
            raise click.UsageError("--table and --schema go with --url; an outbox of a program has its own")
        return _of_program(target.app)
    return _of_url(call, target, kept)


def _of_program(path: str) -> OutboxBase:
    from aftercommit.base import OutboxBase  # noqa: PLC0415  (the engine is loaded when there is something to do)
    from aftercommit.cli.importing import load_target  # noqa: PLC0415

    found = load_target(path)
    if callable(found) and not isinstance(found, OutboxBase):
        found = _made_by(found, path)
    if not isinstance(found, OutboxBase):
        raise CannotStart(
            f"{path} is a {type(found).__module__}.{type(found).__qualname__}, and no outbox",
            fix="name an Outbox or AsyncOutbox, or a function without arguments that returns one",
        )
    return found


def _made_by(factory: Callable[[], Any], path: str) -> Any:
    from aftercommit.errors import OutboxError  # noqa: PLC0415
    from aftercommit.events.redact import error_text  # noqa: PLC0415

    try:
        return factory()
    except OutboxError:
        raise
    except (Exception, SystemExit) as error:  # whatever the program does when it makes one
        raise CannotStart(f"{path}() failed: {error_text(error)}", fix="-vv shows where it happened") from error


def _of_url(call: Call, target: Target, kept: dict[str, Any]) -> OutboxBase:
    from aftercommit.outbox import Outbox  # noqa: PLC0415

    # A command that looks at a table makes none; `migrate up` and `init` say so themselves.
    options: dict[str, Any] = {"create_schema": False, **call.settings.options, **kept}
    named = {"table": target.table, "schema": target.schema}
    options.update({name: value for name, value in named.items() if value is not None})
    return Outbox(target.url, **options)


def takes_outbox(*, positional: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The options that name an outbox; the function gets a `Session` for it as `session`, closed behind it.

    `positional`: the outbox may also be the first argument, as in `aftercommit run shop:outbox`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def called(*, app: str | None, url: str | None, table: str | None, schema: str | None, **rest: Any) -> Any:
            argument = rest.pop("target", None)
            if argument is not None and app is not None:
                raise click.UsageError("the outbox is named twice: as an argument and by --app")
            call = this_call()
            target = chosen(call, Target(argument or app, url, table, schema))
            with Session(call, target, partial(open_target, call, target)) as session:
                return function(session=session, **rest)

        return _with_options(called, positional=positional)

    return decorate


def _with_options(function: Callable[..., Any], *, positional: bool) -> Callable[..., Any]:
    options = [
        click.option("--app", metavar="MODULE:ATTRIBUTE", help="The outbox, or a function that makes it."),
        click.option("--url", help="The database, when the outbox of no program is needed."),
        click.option("--table", help="With --url: the table of events."),
        click.option("--schema", help="With --url: the database schema."),
    ]
    if positional:
        options.insert(0, click.argument("target", required=False, metavar="[MODULE:ATTRIBUTE]"))
    for option in reversed(options):
        function = option(function)
    return function
