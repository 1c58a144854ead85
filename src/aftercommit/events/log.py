"""Where everything of ours is logged: what the program's own logging raises must break nothing here."""

from __future__ import annotations

import logging
import sys
from contextlib import suppress

from aftercommit.events.redact import error_text


class Log:
    """One of our loggers. A record that a handler, filter or factory of the program raises on is lost, and no more."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, message: str, *values: object) -> None:
        self._say(logging.DEBUG, message, values)

    def info(self, message: str, *values: object) -> None:
        self._say(logging.INFO, message, values)

    def warning(self, message: str, *values: object) -> None:
        self._say(logging.WARNING, message, values)

    def error(self, message: str, *values: object) -> None:
        self._say(logging.ERROR, message, values)

    def _say(self, level: int, message: str, values: tuple[object, ...]) -> None:
        try:
            self._logger.log(level, message, *values, stacklevel=3)  # the record names who spoke
        except (Exception, SystemExit) as error:  # Ctrl-C is for the program
            if logging.raiseExceptions:  # as logging says its own failures
                with suppress(Exception):
                    print(f"{self._logger.name} could not log: {error_text(error)}", file=sys.stderr)
