"""A parent of workers: it starts another for one that died, and stops them all when it is told to.

It is light, because it loads nothing of the program: its children do, each for itself. When the parent dies, even by
SIGKILL, a pipe that only it holds open ends, and the children stop as if they had been told to.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

from aftercommit.cli.exits import Exit
from aftercommit.cli.files import Files
from aftercommit.cli.output import Output, span
from aftercommit.cli.signals import STOPPING
from aftercommit.errors import CannotStart

#: A child that dies at once is started again after this, twice as long each time, up to the longest.
_FIRST_DELAY: Final = 0.1
_LONGEST_DELAY: Final = 30.0
#: One that has lived for so long is no longer suspected to die at once.
_LONG_LIFE: Final = 60.0

#: The work of a child: its number, from 0 on, and the pipe that ends with the parent. Gives the exit code.
Work = Callable[[int, int], int]


@dataclass
class Child:
    """A place for a process, and the one that has it."""

    number: int
    pid: int | None = None
    started_at: float = 0.0
    #: When another one is to be started; None while one lives, or when only a changed file would help.
    due_at: float | None = 0.0
    deaths: int = 0


class Supervisor:
    """`run()` returns when all children have ended: 0 when they were told to and did so in peace."""

    def __init__(self, work: Work, count: int, output: Output, *, watched: Path | None = None) -> None:
        if not hasattr(os, "fork"):
            raise CannotStart(
                "--processes and --reload need fork(), which this system does not have", fix="leave them out"
            )
        self._work = work
        self._output = output
        self._children = [Child(number) for number in range(count)]
        self._files = None if watched is None else Files(watched)
        self._life = os.pipe()
        #: How often it was told to stop.
        self._told = 0

    def run(self) -> int:
        with Wakeups() as wakeups:
            while True:
                for child in self._due():
                    self._start(child)
                self._listen(wakeups, self._pause())
                if not self._told:
                    ended = self._ended()
                    if self._is_hopeless(codes := [code for _, code in ended]):
                        return max(codes)
                    for child, code in ended:
                        self._mourn(child, code)
                    if self._files is not None and (changed := self._files.changed()):
                        self._reload(changed, wakeups)
                if self._told:
                    return self._stop(wakeups)

    def _listen(self, wakeups: Wakeups, timeout: float | None) -> None:
        if wakeups.wait(timeout) & set(STOPPING):
            self._told += 1

    # ------------------------------------------------------------ starting

    def _due(self) -> list[Child]:
        now = time.monotonic()
        return [each for each in self._children if each.due_at is not None and each.due_at <= now]

    def _start(self, child: Child) -> None:
        """Signals wait meanwhile: until the child has its own, they would be taken for the parent's."""
        signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
        try:
            child.pid = os.fork()
            if child.pid == 0:
                self._be(child)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
        child.started_at, child.due_at = time.monotonic(), None

    def _be(self, child: Child) -> NoReturn:
        """In the child, to its end: a program's own, with all that it has asked for at its exit."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self._life[1])
        raise SystemExit(self._work(child.number, self._life[0]))

    # ------------------------------------------------------------ dying

    def _ended(self) -> list[tuple[Child, int]]:
        """Those that have ended, with their exit codes; their places are free."""
        ended = []
        for child in self._children:
            if child.pid is not None and (status := os.waitpid(child.pid, os.WNOHANG))[0]:
                ended.append((child, os.waitstatus_to_exitcode(status[1])))
        for child, _ in ended:
            child.pid = None
        return ended

    def _mourn(self, child: Child, code: int) -> None:
        """Set a time for the next try."""
        now = time.monotonic()
        child.deaths = 1 if now - child.started_at > _LONG_LIFE else child.deaths + 1
        how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
        if self._files is not None:
            then = "a changed file starts it again"
        else:
            delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** (child.deaths - 1))
            child.due_at, then = now + delay, f"another one starts in {span(delay)}"
        self._output.say(f"process {child.number + 1} {how}; {then}")

    def _is_hopeless(self, codes: list[int]) -> bool:
        """What could not start will not start now either, and no other one lives. A changed file may help."""
        is_alone = all(each.pid is None for each in self._children)
        return self._files is None and is_alone and bool(codes) and {*codes} <= {Exit.USAGE, Exit.NO_START}

    # ------------------------------------------------------------ stopping

    def _stop(self, wakeups: Wakeups) -> int:
        is_clean = all(code == 0 for code in self._end(wakeups))
        return Exit.INTERRUPTED if self._told > 1 else Exit.OK if is_clean else Exit.PROBLEM

    def _end(self, wakeups: Wakeups) -> list[int]:
        """The exit codes of all that lived. Told once, they end in peace; told twice, they are killed."""
        self._kill(signal.SIGTERM)
        codes: list[int] = []
        while True:
            codes += [code for _, code in self._ended()]
            if all(each.pid is None for each in self._children):
                return codes
            self._listen(wakeups, None)
            if self._told > 1:
                self._kill(signal.SIGKILL)

    def _kill(self, number: signal.Signals) -> None:
        for child in self._children:
            if child.pid is not None:
                os.kill(child.pid, number)

    # ------------------------------------------------------------ reloading

    def _reload(self, changed: Path, wakeups: Wakeups) -> None:
        self._output.say(f"{changed} has changed: starting again")
        self._end(wakeups)
        for child in self._children:
            child.due_at, child.deaths = 0.0, 0

    def _pause(self) -> float | None:
        """Until the next one is due, or files are to be looked at."""
        now = time.monotonic()
        pauses = [max(0.0, each.due_at - now) for each in self._children if each.due_at is not None]
        return min([*pauses, *([] if self._files is None else [self._files.interval])], default=None)


class Wakeups:
    """Signals as something to wait for: of those that stop, and of children that ended."""

    def __enter__(self) -> Wakeups:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        self._before = {number: signal.signal(number, _nothing) for number in (*STOPPING, signal.SIGCHLD)}
        signal.set_wakeup_fd(self._write)
        return self

    def wait(self, timeout: float | None) -> set[int]:
        """The signals that came; none when the time is over."""
        select.select([self._read], [], [], timeout)
        try:
            return set(os.read(self._read, 1024))
        except BlockingIOError:
            return set()

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)


def _nothing(*_: object) -> None:
    """A signal with a handler writes its number to the pipe; there is nothing else to do."""
