"""The worlds that are explored: each small enough to be walked to its end, each for one side of the protocol."""

from __future__ import annotations

from typing import Final

from tests.model.rules import Stalls, World
from tests.model.state import Budget, Outcome

_RETRY: Final = (Outcome.RETRY,)
_DEAD: Final = (Outcome.DEAD,)

WORLDS: Final = {
    # One event without a key, hot path, three instances; commits and claims that are never heard of.
    "hot path": World(
        3, (None,), budget=Budget(1, 2, 1), has_hot_path=True, loses_answers=True, gives_back_overtaken=True
    ),
    # Two such events in two memories.
    "two hot": World(2, (None, None), budget=Budget(failures=1), failures=_RETRY, has_hot_path=True, renews=False),
    # Two events of a key: crashes, failures, replays, and leases that run out one by one.
    "pair": World(2, (0, 0), budget=Budget(1, 1, 1)),
    # What follows a dead event goes on.
    "passed dead": World(
        2, (0, 0), written=2, budget=Budget(0, 1, 1), failures=_DEAD, blocks=False, gives_back_overtaken=True
    ),
    # Events that are the first of their key are born leased: writers that wait for each other, crashes, failures,
    # replays; commits that are never heard of; a partition that is lost while somebody writes.
    "first of a key": World(2, (0, 0), budget=Budget(1, 1, 1), has_hot_keys=True, stalls=Stalls.LONG, renews=False),
    "first of a key unseen": World(
        2,
        (0, 0),
        budget=Budget(failures=1),
        failures=_DEAD,
        blocks=False,
        has_hot_keys=True,
        loses_answers=True,
        stalls=Stalls.LONG,
    ),
    "first of a key in a partition": World(
        2, (0, 0), has_hot_keys=True, has_partition=True, stalls=Stalls.NONE, renews=False
    ),
    # Three events of a key, runs of all lengths, crashes and operators.
    "run": World(2, (0, 0, 0), budget=Budget(1, 1, 1), stalls=Stalls.NONE, renews=False),
    # What was claimed reaches memory late, or too late.
    "slow claims": World(2, (0, 0), written=2, has_slow_claims=True, stalls=Stalls.LONG),
    # Settles that are sent, written and answered in separate steps, or given up and written all the same.
    "slow settles": World(
        2, (None,), written=1, budget=Budget(1, 1, 1), failures=(*_RETRY, Outcome.DEFER, *_DEAD), has_slow_settles=True
    ),
    "slow settles of a key": World(
        2, (0, 0), written=2, budget=Budget(failures=1), failures=_RETRY, has_slow_settles=True, stalls=Stalls.NONE
    ),
    # One instance meets its own statements again.
    "own strays": World(1, (None,), written=1, budget=Budget(0, 2, 1), failures=_DEAD, has_slow_settles=True),
    # An event dies at one instance while another still runs it, and is replayed.
    "replays": World(
        2,
        (None,),
        written=1,
        budget=Budget(0, 1, 1),
        failures=_DEAD,
        gives_back_overtaken=True,
        watches_replays=True,
    ),
    # A partition that two instances take, lose, give back, and both believe in.
    "partition": World(2, (0, 0), written=2, budget=Budget(crashes=1), has_partition=True, renews=False),
    # The same, and what was claimed reaches memory when the partition may be lost.
    "slow claims of a partition": World(
        2, (0, 0), written=2, has_partition=True, has_slow_claims=True, stalls=Stalls.NONE, renews=False
    ),
    # Suspects whose mark takes its time: leases run out meanwhile, or the partition goes.
    "slow marks": World(2, (None,), written=1, has_slow_marks=True, gives_back_overtaken=True),
    "slow marks in a partition": World(
        2,
        (0,),
        written=1,
        budget=Budget(1, 1, 0),
        failures=_RETRY,
        has_slow_marks=True,
        has_partition=True,
        stalls=Stalls.NONE,
    ),
    # One event kills every process that runs it, two wait beside it.
    "killers": World(
        2, (None, None, None), written=3, killers=frozenset({0}), stalls=Stalls.NONE, renews=False, max_abandoned=2
    ),
    # The same where one count is all there is.
    "killers once": World(
        2, (None, None), written=2, killers=frozenset({0}), stalls=Stalls.NONE, renews=False, max_abandoned=1
    ),
    # One that kills, and leases that run out in every moment, also while it is marked.
    "a killer and slow marks": World(
        2, (None,), written=1, killers=frozenset({0}), has_slow_marks=True, gives_back_overtaken=True
    ),
    # One hangs for ever, and one kills: nobody else waits for ever, and nobody else dies.
    "hung": World(2, (None, None), written=2, budget=Budget(crashes=2), hung=frozenset({0}), stalls=Stalls.NONE),
    "hung beside a killer": World(
        2, (None, None, None), written=3, killers=frozenset({0}), hung=frozenset({1}), stalls=Stalls.NONE, renews=False
    ),
    # For bugs that only show when everything has been walked.
    "one event": World(2, (None,), written=1, budget=Budget(crashes=1)),
    "one event in a partition": World(2, (0,), written=1, budget=Budget(crashes=1), has_partition=True),
}

#: Worlds for the long form: walked as far as time and memory allow.
LARGE_WORLDS: Final = {
    "three events and stalls": World(
        2, (0, 0, 0), written=3, budget=Budget(failures=1), failures=_RETRY, stalls=Stalls.LONG
    ),
    "slow claims and failures": World(
        2, (0, 0), written=2, budget=Budget(failures=1), failures=_RETRY, has_slow_claims=True
    ),
    "partition and failures": World(2, (0, 0), written=2, budget=Budget(1, 1, 0), failures=_RETRY, has_partition=True),
    "three instances": World(3, (0, 0), written=2, budget=Budget(1, 1, 0), failures=_RETRY, stalls=Stalls.LONG),
    "slow settles and stalls": World(
        2, (0, 0), written=2, budget=Budget(failures=1), failures=_RETRY, has_slow_settles=True
    ),
}
