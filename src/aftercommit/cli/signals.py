"""What ends a worker: SIGTERM or Ctrl-C, or the end of its parent. A second signal ends it at once."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from types import FrameType
from typing import Final

from aftercommit.cli.exits import Exit

#: What asks a process to stop.
STOPPING: Final = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    """Listens from its making to the end of the process."""

    def __init__(self, *, parent: int | None = None) -> None:
        """`parent`: a pipe that ends with the process that started this one. That one is told by Ctrl-C as well, and
        decides when to be in a hurry: service managers send SIGTERM to both of them, and the parent passes it on."""
        self._parent = parent
        self._stopping = {signal.SIGTERM} if parent is not None else {*STOPPING}
        self._count = 0
        self._read, write = os.pipe()
        for each in (self._read, write):
            os.set_blocking(each, False)
        # By the pipe, because a handler runs when the main thread comes round, and a thread that waits does not.
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in STOPPING:
            signal.signal(number, self._come)
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)  # a parent has kept them waiting for this

    @property
    def readable(self) -> list[int]:
        """Files of which one becomes readable when there is something to ask `have_come` about."""
        return [self._read] if self._parent is None else [self._read, self._parent]

    def have_come(self) -> bool:
        """Whether the process is to stop. Other signals come here, too."""
        with suppress(BlockingIOError):
            if self._stopping & {*os.read(self._read, 1024)}:
                return True
        return self._parent is not None and bool(select.select([self._parent], [], [], 0)[0])

    def _come(self, number: int, frame: FrameType | None) -> None:
        """The first one is heard by the pipe. Not SIG_IGN for those that are not for us: programs that a handler
        starts would inherit that."""
        self._count += number in self._stopping
        if self._count > 1 and self._parent is None:
            os._exit(Exit.INTERRUPTED)
