"""Promise 8: handlers that let their instance do nothing else, and handlers that never end."""

from __future__ import annotations

import signal
from itertools import product

import pytest

from aftercommit.events.claims import partition_of
from tests.promises.key_listener import ASYNC, type_of
from tests.promises.ordered import CALM, OrderedFleet
from tests.promises.waiting import until

on_servers = pytest.mark.parametrize("fleet", ["postgres", "mariadb", "redis"], indirect=True)

#: How an instance freezes: a `def` handler keeps the GIL, an `async def` one blocks the loop of its instance. To take
#: over from it is the server's part, so each server has one of them, and all pairs are slow.
FREEZES = {("threads", "sync"): "postgres", ("asyncio", "sync"): "mariadb", ("asyncio", "async"): "redis"}


def numbers_of(colour: str) -> list[int]:
    """Events of which the second meets a handler of this colour."""
    numbers = list(range(8)) if colour == "async" else list(range(1, 9))
    assert (type_of(numbers[1]) == ASYNC) == (colour == "async")
    return numbers


@pytest.mark.parametrize(
    ("fleet", "runtime", "colour"),
    [
        pytest.param(server, *freeze, marks=() if FREEZES[freeze] == server else pytest.mark.slow)
        for freeze in FREEZES
        for server in FREEZES.values()
    ],
    indirect=["fleet"],
)
def test_promise_08_order_per_key_survives_a_handler_that_lets_nothing_else_run(
    ordered: OrderedFleet, runtime: str, colour: str
) -> None:
    """No heartbeat, no renewal: another instance takes over, and has done everything when the frozen one goes on."""
    numbers = numbers_of(colour)
    frozen = ordered.join(runtime, obeys=True)
    ordered.until_owned([frozen])
    writer = ordered.writer()
    ids = writer.tell("write_key", key="key", numbers=numbers, does={str(numbers[1]): "freeze"})
    until(lambda: len(ordered.entered(frozen, "key")) == 2, what="a frozen instance")
    assert set(ids[1:]) <= ordered.held_by(frozen).keys(), "all the rest is in its memory"

    other = ordered.join("threads")
    with ordered.taken_over():
        ordered.members.remove(frozen)
    ordered.until_settled(len(numbers))
    assert frozen.process.pid not in {effect.pid for effect in ordered.effects.all() if effect.number != numbers[0]}
    ordered.thaw()
    until(lambda: frozen.count("lease_lost"), what="marks of a frozen instance that are refused")
    ordered.members.append(frozen)
    ordered.until_owned(ordered.members)

    ordered.all_delivered_in_order()
    assert ordered.entered(frozen, "key") == numbers[:2], "of what it had in memory it has begun nothing"
    assert ordered.effects.all()[-1][1:] == ("key", numbers[1], frozen.process.pid)
    # What the frozen instance had done, and could not report, is done again.
    assert ordered.entered(other, "key") in (numbers, numbers[1:])


def neighbours(count: int) -> list[str]:
    """Keys of one partition."""
    names = (f"neighbour-{number}" for number in range(100_000))
    found = [name for name in names if partition_of(name) == 255]
    return found[:count]


#: Which runtime's instance meets which colour's handler, on which server; all pairs are slow.
HANGS = [("postgres", "threads", 0), ("mariadb", "asyncio", 1), ("redis", "threads", 0)]


@pytest.mark.parametrize(
    ("fleet", "runtime", "number"),
    [
        pytest.param(*each, marks=() if each in HANGS else pytest.mark.slow)
        for each in product(("postgres", "mariadb", "redis"), ("threads", "asyncio"), (0, 1))
    ],
    indirect=["fleet"],
)
def test_promise_08_order_per_key_a_handler_that_never_ends_blocks_its_key_and_no_other(
    ordered: OrderedFleet, runtime: str, number: int
) -> None:
    """Of its own partition or of others; also once the partition is another's; until its instance is no more. Even
    numbers are for `def` handlers, odd ones for `async def`."""
    stuck, *others = [*neighbours(4), *(f"key-{number}" for number in range(12))]
    numbers = [number, number + 1, number + 2]
    hanging = ordered.join(runtime, obeys=True)
    writer = ordered.writer(runtime)
    writer.tell("write_key", key=stuck, numbers=numbers, does={str(number): "hang"})
    until(lambda: ordered.entered(hanging, stuck) == [number], what="a handler that hangs")
    for key in others:
        writer.tell("write_key", key=key, numbers=numbers)
    ordered.until_settled(3 * len(others))
    assert {effect.key for effect in ordered.effects.all()} == set(others)

    # The highest partitions are given first.
    helping = ordered.join(runtime)
    ordered.until_owned([hanging, helping])
    until(lambda: partition_of(stuck) in ordered.partitions_of(helping), what="the partition of the key moves")
    for key in (*others, stuck):
        writer.tell("write_key", key=key, numbers=[number + 3])
    ordered.until_settled(4 * len(others))
    looked = helping.tell("poll")
    assert looked == 0
    assert ordered.effects.numbers(stuck) == []
    assert ordered.entered(helping, stuck) == []

    hanging.process.signal(signal.SIGKILL)
    ordered.members.remove(hanging)
    ordered.until_settled(4 * len(others) + 4)
    assert ordered.entered(helping, stuck) == [*numbers, number + 3]
    ordered.all_delivered_in_order()


@on_servers
def test_promise_08_order_per_key_a_fleet_shares_the_work_and_delivers_each_event_once(ordered: OrderedFleet) -> None:
    """Both write keys that are their own and keys that are the other's."""
    ordered.times = CALM
    members = [ordered.join(runtime) for runtime in ("threads", "asyncio")]
    ordered.until_owned(members)
    keys = [f"key-{number}" for number in range(40)]
    ordered.open_gate()
    for number, member in enumerate(members):
        size = {"at_least": 400, "together": 8, "pause": 0.0}
        member.process.send("write_keys", keys=keys[number::2], seed=number, **size)
    total = sum(sum(member.process.answer(60).values()) for member in members)
    ordered.until_settled(total)

    ordered.all_delivered_in_order()
    assert ordered.effects.count() == total
    assert all(ordered.effects.count(member.process.pid) > total / 10 for member in members)
    assert [member.count("lease_lost") for member in members] == [0, 0]
