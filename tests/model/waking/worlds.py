"""The worlds of waking. In most of them the poll interval never ends, so that whatever is told must be looked at for
that alone."""

from __future__ import annotations

from typing import Final

from tests.model.waking.state import Budget, Told, World

_KEY, _ALL, _EXPECTED, _NOT = Told.KEY, Told.EVERYWHERE, Told.EXPECTED, Told.NOT

WORLDS: Final = {
    # Rows of one key, written while others of it are claimed, delivered and settled.
    "one key": World((0, 0), (_KEY, _KEY), run=1),
    "failed claims": World((0, 0), (_KEY, _KEY), run=1, budget=Budget(claims=1), settles_at_once=True),
    "long runs": World((0, 0), (_KEY, _KEY)),
    "two keys": World((0, 1), (_KEY, _KEY), settles_at_once=True),
    # A delivery fails; what follows it goes back to the table.
    "retries": World((0, 0), (_KEY, _KEY), written=2, budget=Budget(failures=1)),
    # Rows wait in memory past their deadlines.
    "deadlines": World((0, 0), (_KEY, _KEY), written=2, run=3, budget=Budget(deadlines=1), settles_at_once=True),
    # The lane is full, and there is more.
    "room": World((0, 1), (_KEY, _KEY), written=2, lane=1, run=1),
    "leaving": World(
        (0, 0, 1), (_KEY,) * 3, written=3, lane=2, wanted=2, budget=Budget(leases=1), settles_at_once=True
    ),
    # Somebody asks for a round while another one is under way.
    "rounds": World((0, 1, 0), (_ALL,) * 3, written=2, settles_at_once=True),
    # A commit that nobody sees, beside one that is seen.
    "expected": World((0, 1), (_EXPECTED, _KEY), settles_at_once=True),
    # The partition is lost and gained.
    "partition": World((0, 0), (_KEY, _KEY), written=1, settles_at_once=True, budget=Budget(moves=1)),
    # What nobody was told of, or was forgotten, is found by the rounds of the interval.
    "strangers": World((0, 0), (_NOT, _KEY), has_rounds=True, budget=Budget(answers=1), settles_at_once=True),
    "forgotten": World((0, 1), (_KEY, _KEY), written=1, run=1, capacity=1, has_rounds=True, settles_at_once=True),
}

#: Worlds for the long form.
LARGE_WORLDS: Final = {
    "three of a key": World((0, 0, 0), (_KEY,) * 3),
    "two keys and slow settles": World((0, 1), (_KEY, _KEY), run=1, budget=Budget(claims=1)),
    "retries while rows are written": World((0, 0), (_KEY, _KEY), budget=Budget(failures=1)),
    "two workers and little room": World((0, 1, 2), (_KEY,) * 3, written=3, lane=1, run=1, workers=2),
    "rounds and slow settles": World((0, 1), (_ALL, _ALL), run=1),
    "a partition and slow settles": World((0, 0), (_KEY, _KEY), budget=Budget(moves=1)),
    "two keys and a short memory": World((0, 1), (_KEY, _KEY), capacity=1, has_rounds=True, settles_at_once=True),
}
