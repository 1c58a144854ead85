"""Connections that nobody uses now: how many are kept for the next, and where those of a parent process go."""

from __future__ import annotations

from typing import Final

#: Idle connections that an executor keeps.
KEPT: Final = 16

#: Connections that a pool of the outbox's own opens at most; transactions of the user's count, too.
LARGEST: Final = 20

#: Seconds to wait for a free one.
PATIENCE: Final = 10.0

#: Connections of a parent process. Closing them here could undo what the parent does on them; they are kept for ever.
abandoned: Final[list[object]] = []
