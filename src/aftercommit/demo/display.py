"""What the audience sees: a live panel on a terminal, plain lines with timestamps everywhere else."""

from __future__ import annotations

import os
import shutil
import textwrap
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TextIO

from aftercommit import EventStatus


class Tone(Enum):
    """How a line is meant; the value is its colour code."""

    PLAIN = ""
    STRONG = "1"
    FAINT = "2"
    BAD = "31"
    GOOD = "32"
    WARNING = "33"
    NEWS = "36"


_TONES: Final = {
    EventStatus.NEW: Tone.NEWS,
    EventStatus.RETRY: Tone.WARNING,
    EventStatus.DONE: Tone.GOOD,
    EventStatus.DEAD: Tone.BAD,
}


@dataclass(frozen=True, slots=True)
class Note:
    """Something that happened, and when."""

    text: str
    tone: Tone = Tone.PLAIN
    at: float = field(default_factory=time.time)

    @property
    def clock(self) -> str:
        return f"{time.strftime('%H:%M:%S', time.localtime(self.at))}.{int(self.at % 1 * 1000):03d}"


class Display(ABC):
    """Narration in permanent lines. Notes may come from any thread; all else is called, and drawn, by the main one."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._news: deque[Note] = deque()

    def note(self, text: str, *, tone: Tone = Tone.PLAIN) -> None:
        """Something happened. Shown at the next turn."""
        self._news.append(Note(text, tone))

    @abstractmethod
    def say(self, text: str, *, tone: Tone = Tone.PLAIN) -> None:
        """A line that stays; an empty one parts paragraphs."""

    @abstractmethod
    def turn_page(self) -> None:
        """Something new begins; what happened before is no longer of interest."""

    @abstractmethod
    def show(self, counts: Mapping[EventStatus, int]) -> None:
        """Show what is new since the last time."""

    @abstractmethod
    def close(self) -> None:
        """Show what is left and leave the terminal as it was."""


class Lines(Display):
    """One line after the other, without any control codes."""

    def say(self, text: str, *, tone: Tone = Tone.PLAIN) -> None:
        self._flush_news()
        self._print(Note(text) if text else None)

    def turn_page(self) -> None:
        self.say("")

    def show(self, counts: Mapping[EventStatus, int]) -> None:
        self._flush_news()

    def close(self) -> None:
        self._flush_news()

    def _flush_news(self) -> None:
        while self._news:
            self._print(self._news.popleft(), indent="     ")

    def _print(self, note: Note | None, *, indent: str = "") -> None:
        print(f"{note.clock}  {indent}{note.text}" if note else "", file=self._out, flush=True)


class Panel(Display):
    """Permanent lines above, and below them a panel that is drawn again in place."""

    #: Notes that the panel shows at once.
    _DEPTH: Final = 7

    def __init__(self, out: TextIO, *, has_colour: bool) -> None:
        super().__init__(out)
        self._has_colour = has_colour
        self._recent: deque[Note] = deque(maxlen=self._DEPTH)
        self._began_at = time.time()
        self._height = 0
        self._bar, self._track, self._cut = ("█", "░", "…") if _can_print(out, "█░…") else ("#", ".", "~")
        out.write("\x1b[?25l")  # the cursor would jump about

    def say(self, text: str, *, tone: Tone = Tone.PLAIN) -> None:
        columns = max(20, min(100, shutil.get_terminal_size().columns))
        indent = " " * (len(text) - len(text.lstrip(" ->")))
        lines = textwrap.wrap(text, columns - 1, subsequent_indent=indent) or [""]
        self._replace([self._painted(line, tone) for line in lines])
        self._height = 0

    def turn_page(self) -> None:
        self._recent.clear()
        self.say("")

    def show(self, counts: Mapping[EventStatus, int]) -> None:
        while self._news:
            self._recent.append(self._news.popleft())
        columns, rows = shutil.get_terminal_size()
        bars = ["", *self._bars(counts, columns), ""]
        depth = max(0, min(self._DEPTH, rows - len(bars) - 1))
        # A line that has left the screen at its top could not be drawn again.
        self._replace([*bars, *self._notes(columns, depth)][: max(1, rows - 1)])

    def close(self) -> None:
        self._replace([])
        self._out.write("\x1b[?25h")
        self._out.flush()

    def _replace(self, lines: list[str]) -> None:
        """Draw over the last panel, in one piece."""
        up = f"\x1b[{self._height}F" if self._height else ""
        self._out.write(up + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
        self._out.flush()
        self._height = len(lines)

    def _bars(self, counts: Mapping[EventStatus, int], columns: int) -> list[str]:
        total, room = max(1, sum(counts.values())), max(5, min(48, columns - 20))
        bars = []
        for status, tone in _TONES.items():
            filled = -(-counts[status] * room // total)  # rounded up: one event is seen, too
            bar = self._painted(self._bar * filled, tone) + self._painted(self._track * (room - filled), Tone.FAINT)
            bars.append(f"  {self._painted(f'{status.name:<5}', tone)}  {bar}  {counts[status]:>3}")
        return bars

    def _notes(self, columns: int, depth: int) -> list[str]:
        """The last ones, in as many lines as there are to be."""
        lines = []
        for note in list(self._recent)[max(0, len(self._recent) - depth) :]:
            clock = f"{note.at - self._began_at:7.3f} s"
            room = max(1, columns - len(clock) - 5)
            text = note.text if len(note.text) <= room else note.text[: room - 1] + self._cut
            lines.append(f"  {self._painted(clock, Tone.FAINT)}  {self._painted(text, note.tone)}")
        return lines + [""] * (depth - len(lines))

    def _painted(self, text: str, tone: Tone) -> str:
        if not self._has_colour or tone is Tone.PLAIN or not text:
            return text
        return f"\x1b[{tone.value}m{text}\x1b[0m"


def display_for(out: TextIO, environ: Mapping[str, str] = os.environ) -> Display:
    """A panel where the terminal can draw one. NO_COLOR takes the colours away, TERM=dumb the panel."""
    can_draw = out.isatty() and environ.get("TERM", "dumb") != "dumb"
    return Panel(out, has_colour=not environ.get("NO_COLOR")) if can_draw else Lines(out)


def _can_print(out: TextIO, text: str) -> bool:
    try:
        text.encode(out.encoding)
    except UnicodeEncodeError:
        return False
    return True
