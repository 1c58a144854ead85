"""`python -m aftercommit.demo`: reads the arguments, owns the temporary folder, and ends cleanly on Ctrl-C."""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from aftercommit.demo.display import Display, Tone, display_for
from aftercommit.demo.figures import Figures
from aftercommit.demo.pace import FAST, NORMAL, Pace
from aftercommit.demo.shop import Shop
from aftercommit.demo.stage import Stage, Stopped, log_in_notes
from aftercommit.demo.story import Story
from aftercommit.demo.victim import ARGUMENT, be_the_victim

#: As a shell names the end of a program whose output nobody reads. Windows has no such signal.
_SIGPIPE: Final = 13


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code: 0 when exactly what was committed was delivered, 1 when not, 128 + n when signal n ended it."""
    options = _options(arguments)
    pace = FAST if options.fast else NORMAL
    if options.victim:
        be_the_victim(Path(options.victim[0]), int(options.victim[1]), pace)
        return 0
    signals = _listen_to_signals()
    try:
        with _folder(keep=options.keep) as folder:
            return _run(folder / "shop.db", pace, signals)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise
        # The reader of our output, or the terminal, has gone. What is still to be written goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + (signals[0] if signals else _SIGPIPE)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m aftercommit.demo",
        description="An order service that shows what becomes of an event: delivered after the commit, retried, "
        "taken over from a killed process, buried and replayed. Takes about ten seconds.",
    )
    parser.add_argument("--fast", action="store_true", help="do not wait for readers")
    parser.add_argument("--keep", action="store_true", help="keep the database, and say where it is")
    parser.add_argument(ARGUMENT, nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


@contextmanager
def _folder(*, keep: bool) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="aftercommit-demo-"))
    try:
        yield folder
    finally:
        if keep:
            print(f"The database is kept: {folder / 'shop.db'}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _run(database: Path, pace: Pace, signals: list[int]) -> int:
    with closing(display_for(sys.stdout)) as display, log_in_notes(display):
        try:
            is_right = _play(database, pace, display, signals)
        except Stopped:
            display.say("")
            display.say("Stopped.")
            return 128 + signals[0]
    return 0 if is_right else 1


def _play(database: Path, pace: Pace, display: Display, signals: list[int]) -> bool:
    shop = Shop(database, pace, note=lambda text: display.note(text, tone=Tone.GOOD))
    with shop, closing(Figures(database)) as figures:
        stage = Stage(display, figures, is_stopped=lambda: bool(signals))
        return Story(shop, stage, pace, database=database).play()


def _listen_to_signals() -> list[int]:
    """The signals that came. They end the demo between two steps, so nothing is left half done."""
    came: list[int] = []
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if number := getattr(signal, name, None):  # Windows has no SIGHUP
            signal.signal(number, lambda number, _: came.append(number))
    return came


if __name__ == "__main__":
    sys.exit(main())
