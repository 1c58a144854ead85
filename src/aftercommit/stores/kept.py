"""Connections that nobody uses now: how many are kept for the next, and where those of a parent process go."""

from __future__ import annotations

from typing import Final

#: Idle connections that an executor keeps.
KEPT: Final = 16

#: Connections of a parent process. Closing them here could undo what the parent does on them; they are kept for ever.
abandoned: Final[list[object]] = []
