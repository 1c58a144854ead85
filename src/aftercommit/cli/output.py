"""What a command says: data on stdout, talk on stderr, secrets masked in both."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import date, datetime, timedelta
from enum import Enum
from typing import IO, Any, Final

import click

from aftercommit.cli.exits import Refused
from aftercommit.events.redact import redact


class Verbatim(str):
    """A text of the user's that is shown as it is stored: a payload, when it was asked for."""

    __slots__ = ()


class Output:
    """Of one call of the program. Colours and bars are for terminals, and only where they are wanted."""

    def __init__(self, *, is_plain: bool = False) -> None:
        self._is_plain = is_plain or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"

    def is_rich(self, stream: IO[str]) -> bool:
        """Whether the stream is a terminal that may be painted."""
        return not self._is_plain and stream.isatty()

    # ------------------------------------------------------------ talk

    def say(self, text: str = "") -> None:
        """To the person who waits; never a part of the result."""
        _talk(redact(text))

    def complain(self, text: str) -> None:
        """As `say`, in red where there are colours."""
        red = ("\x1b[31m", "\x1b[0m") if self.is_rich(sys.stderr) else ("", "")
        _talk(f"{red[0]}{redact(text)}{red[1]}")

    # ------------------------------------------------------------ data

    def line(self, text: str = "") -> None:
        """One line of the result."""
        print(_shown(text), flush=True)

    def json(self, schema: str, **data: object) -> None:
        """The whole result as one document: `{"schema": "aftercommit.status/1", …}`."""
        self.json_line({"schema": f"aftercommit.{schema}", **data}, indent=2)

    def json_line(self, data: Mapping[str, object], *, indent: int | None = None) -> None:
        """One of a stream of documents. Printed as it is: what styles text may wrap it, too."""
        print(json.dumps(_jsonable(data), indent=indent, ensure_ascii=False), flush=True)

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        """Aligned columns; on a terminal with a line below the heads. Numbers stand to the right."""
        values = list(rows)
        cells = [["" if cell is None else _shown(_text(cell)) for cell in row] for row in values]
        if self.is_rich(sys.stdout):
            _print_rich(columns, cells, values)
        else:
            _print_plain(columns, cells)

    # ------------------------------------------------------------ questions

    def confirm(self, what: str, *, yes: bool) -> None:
        """Ask before a change that cannot be undone. Without a terminal, and without --yes, it is refused."""
        self.say(what)
        if yes:
            return
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise Refused("nobody is here to confirm that; add --yes to do it without a question")
        if not click.confirm("Continue?", default=False, err=True):
            raise Refused("nothing was changed")

    @contextmanager
    def progress(self, label: str, total: int | None = None) -> Iterator[Progress]:
        """A bar on a terminal; elsewhere nothing."""
        if not self.is_rich(sys.stderr):
            yield Progress()
            return
        from rich.console import Console  # noqa: PLC0415  (a third of the time that --help has)
        from rich.progress import Progress as Bars  # noqa: PLC0415

        with Bars(console=Console(stderr=True), transient=True) as bars:
            task = bars.add_task(label, total=total)
            yield _Bar(bars, task)


def _talk(text: str) -> None:
    with suppress(OSError):  # that nobody listens any more is no reason to break off the work
        sys.stderr.write(f"{text}\n")  # at once, because several processes may talk to one terminal
        sys.stderr.flush()


class Progress:
    """Told of every step of a long work; this one keeps it to itself."""

    def advance(self, steps: int = 1) -> None: ...


class _Bar(Progress):
    def __init__(self, bars: Any, task: Any) -> None:
        self._bars, self._task = bars, task

    def advance(self, steps: int = 1) -> None:
        self._bars.advance(self._task, steps)


# ---------------------------------------------------------------- values as text

_NUMERIC: Final = (int, float, timedelta)


def span(value: timedelta | float | None) -> str:
    """A duration for people: `12m 04s`.

    >>> span(724.1), span(0.0841), span(timedelta(days=2, hours=1))
    ('12m 04s', '84ms', '2d 01h')
    """
    if value is None:
        return ""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 60:
        return f"{seconds:.0f}s" if seconds >= 10 else f"{seconds:.1f}s"
    for size, unit, below in ((86400, "d", "h"), (3600, "h", "m"), (60, "m", "s")):
        if seconds >= size:
            rest = {"h": 3600, "m": 60, "s": 1}[below]
            return f"{int(seconds // size)}{unit} {int(seconds % size // rest):02d}{below}"
    raise AssertionError(seconds)


def _text(value: object) -> str:
    match value:
        case bool():
            return "yes" if value else "no"
        case timedelta():
            return span(value)
        case int():
            return f"{value:,}"
        case datetime():
            return value.isoformat(sep=" ", timespec="milliseconds")
        case str():
            return value
        case _:
            return str(value)


def _shown(text: str) -> str:
    """On one line, without what would steer a terminal."""
    said = text if isinstance(text, Verbatim) else redact(text)
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in said)


def _jsonable(value: object) -> Any:
    """Plain data: times as ISO 8601, durations in seconds."""
    match value:
        case None | bool() | int() | float() | Verbatim():
            return value
        case str():
            return redact(value)
        case datetime() | date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Enum():
            return value.name
        case Mapping():
            return {str(key): _jsonable(each) for key, each in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_jsonable(each) for each in value]
        case _:
            return redact(str(value))


def _print_plain(columns: Sequence[str], cells: list[list[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in ([each.upper() for each in columns], *cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    sys.stdout.flush()


def _print_rich(columns: Sequence[str], cells: list[list[str]], values: list[Sequence[object]]) -> None:
    from rich.console import Console  # noqa: PLC0415  (only for terminals)
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(columns):
        is_numeric = bool(values) and all(isinstance(row[number], _NUMERIC) for row in values)
        table.add_column(name, justify="right" if is_numeric else "left")
    for row in cells:
        table.add_row(*map(Text, row))  # as it is: a text in brackets is no markup
    Console().print(table)
