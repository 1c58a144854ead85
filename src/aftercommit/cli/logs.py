"""What is logged while a command runs: on stderr, as lines or as JSON, secrets masked."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from aftercommit.events.redact import redact

#: Every attribute that a record has without anybody's `extra`.
_USUAL: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def set_up_logging(verbosity: int, form: str) -> None:
    """`verbosity` 0 shows warnings, 1 what a worker does, 2 every delivery. A program that sets up its own logging is
    heard as it wants to be."""
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonLines() if form == "json" else Lines())
        root.addHandler(handler)
    level = (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity, 2)]
    logging.getLogger("aftercommit").setLevel(level)


class Lines(logging.Formatter):
    """For people: time, level, logger, text; a traceback below it."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class JsonLines(logging.Formatter):
    """One object a line: time, level, logger, message, what the record has as `extra`, and the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(record.getMessage()),
        }
        for name, value in vars(record).items():
            if name not in _USUAL:
                said[name] = value if isinstance(value, int | float | bool | None) else redact(str(value))
        if record.exc_info:
            said["traceback"] = redact(self.formatException(record.exc_info))
        return json.dumps(said, ensure_ascii=False)
