"""Ids grow, whatever the clock, the threads and the forks do (promises 13 and 14)."""

from __future__ import annotations

import os
import re
import signal
import threading
from collections.abc import Callable
from itertools import islice, pairwise, starmap
from operator import lt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aftercommit.events import ids
from aftercommit.events.ids import UlidFactory, new_id

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
NOON = 1_700_000_000_000_000_000
MILLISECOND = 1_000_000

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
#: From 3.12 on Python warns of a fork beside threads, and pytest-timeout has one.
may_fork_beside_threads = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def test_an_id_is_26_characters_of_crockford_base32():
    assert re.fullmatch(f"[0-7][{ALPHABET}]{{25}}", new_id())


def test_the_first_ten_characters_are_the_time():
    before_the_epoch = UlidFactory(clock=lambda: -5 * MILLISECOND)
    at_noon = UlidFactory(clock=lambda: NOON + 123 * MILLISECOND + 999_999)

    assert time_of(at_noon()) == NOON // MILLISECOND + 123
    assert time_of(before_the_epoch()) == 0


def test_the_rest_is_sixty_random_bits_and_a_count_that_starts_at_random_in_its_lower_half():
    make = UlidFactory(clock=lambda: NOON, entropy=lambda size: bytes(range(0xF0, 0xF0 + size)))

    drawn, count = divmod(random_of(make()), 2**20)

    assert drawn == 0xF0F1F2F3F4F5F6F7F8F9 >> 20
    assert count == 0x7F8F9
    assert divmod(random_of(make()), 2**20) == (drawn, count + 1)


def test_every_factory_draws_its_own_randomness():
    drawn = {random_of(UlidFactory(clock=lambda: NOON)()) >> 20 for _ in range(1000)}

    assert len(drawn) == 1000


def test_ids_grow_while_the_clock_stands_still():
    make = UlidFactory(clock=lambda: NOON)

    made = [make() for _ in range(10_000)]

    assert all(starmap(lt, pairwise(made)))
    assert {time_of(each) for each in made} == {NOON // MILLISECOND}


def test_ids_grow_when_the_clock_steps_back_ten_seconds():
    readings = iter([NOON, NOON - 10_000 * MILLISECOND, NOON - 9_999 * MILLISECOND, NOON + MILLISECOND])
    make = UlidFactory(clock=readings.__next__)

    made = [make() for _ in range(4)]

    assert all(starmap(lt, pairwise(made)))
    assert [time_of(each) - NOON // MILLISECOND for each in made] == [0, 0, 0, 1]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(NOON, NOON + 3 * MILLISECOND), min_size=2))
def test_ids_grow_over_any_readings_of_the_clock(readings):
    make = UlidFactory(clock=iter(readings).__next__)

    made = [make() for _ in readings]

    assert all(starmap(lt, pairwise(made)))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(NOON - MILLISECOND, NOON + 3 * MILLISECOND)), min_size=1))
def test_many_at_once_are_what_as_many_one_after_the_other_are_at_that_time(groups):
    time = [NOON]
    at_once, one_by_one = (UlidFactory(clock=lambda: time[0], entropy=lambda size: b"\x01" * size) for _ in "ab")
    made, expected = [], []
    for count, time[0] in groups:
        made += at_once.many(count)
        expected += [one_by_one() for _ in range(count)]

    assert made == expected
    assert all(starmap(lt, pairwise(made)))


def test_many_at_once_carry_into_the_time_when_the_count_is_full(monkeypatch):
    monkeypatch.setattr(ids, "_FIRST_MASK", 2**20 - 1)
    make = UlidFactory(clock=lambda: NOON, entropy=lambda size: b"\xff" * (size - 1) + b"\xfd")

    made = [make(), *make.many(5)]

    assert [time_of(each) - NOON // MILLISECOND for each in made] == [0, 0, 0, 1, 1, 1]
    assert all(starmap(lt, pairwise(made)))


def test_ids_grow_in_every_one_of_eight_threads_and_none_comes_twice():
    make, start = UlidFactory(), threading.Barrier(8)
    made: list[list[str]] = [[] for _ in range(8)]

    def work(mine: list[str]) -> None:
        start.wait()
        for _ in range(2_000):
            mine.extend((make(), *make.many(9)))

    threads = [threading.Thread(target=work, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(all(starmap(lt, pairwise(mine))) for mine in made)
    assert len(set().union(*made)) == 8 * 20_000


def test_a_full_count_carries_into_the_time_and_goes_on_growing(monkeypatch):
    monkeypatch.setattr(ids, "_FIRST_MASK", 2**20 - 1)
    readings = iter([NOON, NOON, NOON, NOON + MILLISECOND, NOON + 2 * MILLISECOND])
    make = UlidFactory(clock=readings.__next__, entropy=lambda size: b"\xff" * size)

    made = [make() for _ in range(5)]

    assert [time_of(each) - NOON // MILLISECOND for each in made] == [0, 1, 1, 1, 2]
    assert [random_of(each) % 2**20 for each in made] == [2**20 - 1, 0, 1, 2, 3]
    assert all(starmap(lt, pairwise(made)))


@needs_fork
@may_fork_beside_threads
def test_parent_and_child_never_make_the_same_id():
    make = UlidFactory(clock=lambda: NOON)
    before = [make() for _ in range(100)]

    child = Child(lambda: [make() for _ in range(10_000)])
    parents = [make() for _ in range(10_000)]
    childs = child.result()

    assert len(set(before + parents + childs)) == 20_100
    assert min(childs) > max(before)
    assert all(starmap(lt, pairwise(before + parents)))
    assert all(starmap(lt, pairwise(childs)))


@needs_fork
@may_fork_beside_threads
def test_two_children_and_a_grandchild_never_make_the_same_id():
    make = UlidFactory(clock=lambda: NOON)
    before = make()

    def with_grandchild() -> list[str]:
        mine = [make() for _ in range(1000)]
        return mine + Child(lambda: [make() for _ in range(1000)]).result()

    elder, younger = Child(with_grandchild), Child(lambda: [make() for _ in range(1000)])
    made = [elder.result(), younger.result()]

    assert len({*made[0], *made[1]}) == 3000
    assert all(starmap(lt, pairwise([before, *made[0]])))
    assert all(starmap(lt, pairwise([before, *made[1]])))


@needs_fork
@may_fork_beside_threads
def test_new_id_is_fork_safe():
    before = new_id()

    child = Child(lambda: [new_id() for _ in range(1000)])
    parents = [new_id() for _ in range(1000)]
    childs = child.result()

    assert min(childs) > before
    assert not {*parents} & {*childs}


@needs_fork
@may_fork_beside_threads
def test_a_lock_held_at_the_fork_does_not_stop_the_child():
    is_held, may_go_on = threading.Event(), threading.Event()

    def clock() -> int:
        if threading.current_thread() is holder:
            is_held.set()
            may_go_on.wait()
        return NOON

    make = UlidFactory(clock=clock)
    holder = threading.Thread(target=make, daemon=True)
    before = make()
    holder.start()
    is_held.wait()

    childs = Child(lambda: [make()]).result()
    may_go_on.set()
    holder.join()
    parents = make()

    assert childs[0] > before
    assert parents > before


@pytest.mark.parametrize("count", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.slow)])
def test_millions_of_ids_without_a_repeat(count):
    made = islice(iter(new_id, ""), count)

    assert all(starmap(lt, pairwise(made)))  # what grows does not repeat


class Child:
    """A forked process that makes ids; killed after a while, so that a deadlock fails and does not hang."""

    def __init__(self, work: Callable[[], list[str]]) -> None:
        self._from_child, to_parent = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(to_parent)
        else:
            self._run(work, to_parent)

    def _run(self, work: Callable[[], list[str]], to_parent: int) -> None:
        code = 1
        try:
            signal.alarm(20)
            with os.fdopen(to_parent, "w") as pipe:
                pipe.write("\n".join(work()))
            code = 0
        finally:
            os._exit(code)  # never back into pytest

    def result(self) -> list[str]:
        with os.fdopen(self._from_child) as pipe:
            text = pipe.read()
        _, status = os.waitpid(self._pid, 0)
        assert status == 0, "the child failed or hung"
        return text.split("\n")


def time_of(ulid: str) -> int:
    return number_of(ulid) >> 80


def random_of(ulid: str) -> int:
    return number_of(ulid) & (2**80 - 1)


def number_of(ulid: str) -> int:
    number = 0
    for character in ulid:
        number = number << 5 | ALPHABET.index(character)
    return number
