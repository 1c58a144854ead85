"""Where everything of ours is logged: what the program's own logging raises must break nothing here."""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import suppress
from functools import partial

from aftercommit.events.masked import masked
from aftercommit.events.redact import error_text, redact


class Log:
    """One of our loggers. A record that a handler, filter or factory of the program raises on is lost, and no more.

    An `error` becomes the record's `exc_info`, secrets masked. Every other keyword that is not None is an attribute of
    the record with `outbox_` before its name: formatters and collectors know events by them. docs/monitoring.md has
    the list.
    """

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)
        #: Whether DEBUG is on, for those who would have to find out first what they want to say.
        self.is_verbose = partial(self._logger.isEnabledFor, logging.DEBUG)

    def debug(self, message: str, *values: object, error: BaseException | None = None, **facts: object) -> None:
        self._say(logging.DEBUG, message, values, error, facts)

    def info(self, message: str, *values: object, error: BaseException | None = None, **facts: object) -> None:
        self._say(logging.INFO, message, values, error, facts)

    def warning(self, message: str, *values: object, error: BaseException | None = None, **facts: object) -> None:
        self._say(logging.WARNING, message, values, error, facts)

    def error(self, message: str, *values: object, error: BaseException | None = None, **facts: object) -> None:
        self._say(logging.ERROR, message, values, error, facts)

    def _say(
        self,
        level: int,
        message: str,
        values: tuple[object, ...],
        error: BaseException | None,
        facts: dict[str, object],
    ) -> None:
        try:
            if not self._logger.isEnabledFor(level):
                return
            file, line, function, _ = self._logger.findCaller(stacklevel=3)  # the record names who spoke
            extra = {f"outbox_{name}": value for name, value in facts.items() if value is not None}
            if error is not None:
                extra["outbox_error_type"] = type(error).__name__
            record = self._logger.makeRecord(
                self._logger.name, level, file, line, message, values, None, func=function, extra=extra
            )
            if error is not None:
                _add_error(record, error)
            self._logger.handle(record)
        except (Exception, SystemExit) as problem:  # Ctrl-C is for the program
            if logging.raiseExceptions:  # as logging says its own failures
                with suppress(Exception):
                    print(f"{self._logger.name} could not log: {error_text(problem)}", file=sys.stderr)


def _add_error(record: logging.LogRecord, error: BaseException) -> None:
    """The error, and its text where that has to be another than a formatter would make: lines of the source are part of
    a traceback, and one of them may say the password."""
    safe = masked(error)
    record.exc_info = (type(error), safe, error.__traceback__)
    try:
        text = "".join(traceback.format_exception(safe)).rstrip()
        shown = redact(text.encode("utf-8", "backslashreplace").decode())
    except Exception:  # its class may have a word in how it is printed
        text, shown = "", error_text(error)
    if shown != text:
        record.exc_text = shown
