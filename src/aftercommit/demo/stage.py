"""Where the acts are played: it announces, waits while the display lives, and lets the library's log speak in notes."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from aftercommit.demo.display import Display, Tone
from aftercommit.demo.figures import Figures

#: Seconds that the whole demo may take; three times what it needs.
AT_MOST: Final = 25.0

#: Seconds between two looks at the table.
TURN: Final = 0.04

#: Events are long in log lines; the key is enough for people.
_EVENT: Final = re.compile(r"EventEnvelope\(.*?key='([^']*)'\)")


class Stopped(Exception):
    """The audience has left."""


class Overdue(Exception):
    """Something that should happen has not happened in time."""


class Stage:
    """One display over one set of figures, for as long as somebody watches."""

    def __init__(self, display: Display, figures: Figures, *, is_stopped: Callable[[], bool]) -> None:
        self.display = display
        self.figures = figures
        self._is_stopped = is_stopped
        self._ends_at = time.monotonic() + AT_MOST
        self._acts = 0

    def act(self, title: str, sentence: str) -> None:
        self._acts += 1
        self.display.turn_page()
        self.display.say(f"{self._acts}. {title}", tone=Tone.STRONG)
        self.display.say(f"   {sentence}")

    def result(self, text: str) -> None:
        self._turn()
        self.display.say(f"   -> {text}", tone=Tone.GOOD)

    def pause(self, seconds: float) -> None:
        """Time to read, or for the next customer to come."""
        over = time.monotonic() + seconds
        self.wait(lambda: time.monotonic() >= over)

    def wait(self, is_reached: Callable[[], bool]) -> None:
        """Until it is reached. Raises Stopped or Overdue when that makes no sense any more."""
        self._turn()
        while not is_reached():
            if time.monotonic() >= self._ends_at:
                raise Overdue(f"act {self._acts} did not come to its end within the {AT_MOST:.0f} s of the demo")
            time.sleep(TURN)
            self._turn()

    def _turn(self) -> None:
        if self._is_stopped():
            raise Stopped
        self.display.show(self.figures.by_status())


@contextmanager
def log_in_notes(display: Display) -> Iterator[None]:
    """Show warnings of the library as short notes, and nowhere else."""
    logger, handler = logging.getLogger("aftercommit"), _Notes(display)
    before = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = before


class _Notes(logging.Handler):
    def __init__(self, display: Display) -> None:
        super().__init__(logging.WARNING)
        self._display = display

    def emit(self, record: logging.LogRecord) -> None:
        tone = Tone.WARNING if record.levelno < logging.ERROR else Tone.BAD
        self._display.note(short(record.getMessage()), tone=tone)


def short(message: str) -> str:
    """A log message in one line: what happened to which event, and the error without its traceback.

    >>> short("attempt 1 of EventEnvelope('A', event_id='1', key='Order/7') failed: Traceback (…):\\n  …\\nOSError: no")
    'attempt 1 of Order/7 failed: OSError: no'
    """
    first, *others = _EVENT.sub(r"\1", message).splitlines() or [""]
    return f"{first.partition(' Traceback (')[0]} {others[-1].strip()}" if others else first
