"""The round over all partitions that finds what nobody was told of, in pieces, each going on where the last stopped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aftercommit.events.order import OrderKey


class Stretch(NamedTuple):
    """The next piece of a round: partitions in the order to walk them, behind a key of the first one."""

    partitions: Sequence[int]
    after: OrderKey | None


class Sweep:
    """A round begins where the last piece ended, whichever round that was of: else what comes late would starve."""

    def __init__(self) -> None:
        self._after: OrderKey | None = None
        self._ahead: list[int] = []

    @property
    def is_over(self) -> bool:
        return not self._ahead

    def begin(self, partitions: Iterable[int]) -> None:
        """A whole round over these, from here to here."""
        ordered = sorted(partitions)
        after = self._after
        if after is None:
            self._ahead = ordered
            return
        self._ahead = [each for each in ordered if each >= after.partition]
        self._ahead += [each for each in ordered if each < after.partition]
        if self._ahead and self._ahead[0] == after.partition:
            self._ahead.append(after.partition)  # its keys up to the one where this round begins
        else:
            self._after = None

    def end(self) -> None:
        """Nothing more is to be walked."""
        self._ahead = []

    def stretch(self) -> Stretch:
        """What to walk next. No partition is in it twice."""
        is_round = len(self._ahead) > 1 and self._ahead[0] == self._ahead[-1]
        return Stretch(self._ahead[:-1] if is_round else list(self._ahead), self._after)

    def passed(self, stretch: Stretch, after: OrderKey | None) -> None:
        """A stretch was walked up to this key; None: to its end."""
        self._after = after
        walked = len(stretch.partitions) if after is None else list(stretch.partitions).index(after.partition)
        del self._ahead[:walked]
