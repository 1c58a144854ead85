"""The worlds of waking. In most of them the poll interval never ends, so that whatever is told must be looked at for
that alone."""

from __future__ import annotations

from typing import Final

from tests.model.waking.state import Budget, Told, World

_KEY, _ALL, _EXPECTED, _NOT = Told.KEY, Told.EVERYWHERE, Told.EXPECTED, Told.NOT

WORLDS: Final = {
    # Rows of one key, written while others of it are claimed, delivered and settled.
    "one key": World((0, 0), (_KEY, _KEY), run=1, budget=Budget(claims=1)),
    "long runs": World((0, 0, 0), (_KEY,) * 3, run=2),
    # Two keys.
    "two keys": World((0, 1), (_KEY, _KEY), run=1),
    # A delivery fails; what follows it goes back to the table.
    "retries": World((0, 0), (_KEY, _KEY), written=1, budget=Budget(failures=1)),
    # The lane is full, and there is more.
    "room": World((0, 1), (_KEY,) * 2, written=2, lane=1, run=1),
    "leaving": World(
        (0, 0, 1), (_KEY,) * 3, written=3, lane=2, wanted=2, budget=Budget(leases=1), settles_at_once=True
    ),
    # Somebody asks for rounds.
    "rounds": World((0, 1), (_ALL, _ALL), run=1),
    # Commits that nobody sees, beside one that is seen.
    "expected": World((0, 1), (_EXPECTED, _KEY), run=1),
    # The partition is lost and gained.
    "partition": World((0, 0), (_KEY, _KEY), written=1, run=1, budget=Budget(moves=1)),
    # What nobody was told of, or was forgotten, is found by the rounds of the interval.
    "strangers": World((0, 0), (_NOT, _KEY), has_rounds=True, budget=Budget(answers=1)),
    "forgotten": World((0, 1), (_KEY,) * 2, run=1, capacity=1, has_rounds=True, settles_at_once=True),
}
