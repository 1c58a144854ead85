"""A circuit: closed, open, and tried by one at a time."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from aftercommit.delivery.circuits import LONGEST_PAUSE, WHILE_PROBING, Circuit


def test_a_closed_circuit_lets_everything_through():
    circuit = Circuit()
    assert not circuit.is_open
    assert [circuit.wait(now) for now in (0.0, 0.0, 5.0)] == [None] * 3


def test_an_open_one_says_how_long_to_wait():
    circuit = Circuit()
    assert circuit.failed(100.0, timedelta(seconds=30)) == 30
    assert circuit.is_open
    assert circuit.wait(100.0) == 30
    assert circuit.wait(129.0) == 1


def test_then_one_is_let_through_and_the_others_wait_for_it():
    circuit = Circuit()
    circuit.failed(0.0, timedelta(seconds=1))
    assert circuit.wait(1.0) is None
    assert circuit.wait(1.0) == WHILE_PROBING
    circuit.answered()
    assert circuit.wait(1.0) is None
    assert not circuit.is_open


def test_a_probe_that_was_broken_off_is_followed_by_another():
    circuit = Circuit()
    circuit.failed(0.0, timedelta(seconds=1))
    assert circuit.wait(1.0) is None
    circuit.interrupted()
    assert circuit.is_open
    assert circuit.wait(1.0) is None


def test_those_that_were_under_way_when_it_opened_do_not_prolong_it():
    circuit = Circuit()
    circuit.failed(0.0, None)
    assert circuit.failed(0.5, None) == 0.5
    assert circuit.wait(1.0) is None


def test_the_pause_doubles_up_to_a_minute():
    circuit, now, pauses = Circuit(), 0.0, []
    for _ in range(9):
        pauses.append(circuit.failed(now, None))
        now += pauses[-1]
        assert circuit.wait(now) is None
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    circuit.answered()
    assert circuit.failed(now, None) == 1


@given(st.lists(st.tuples(st.sampled_from(["wait", "failed", "answered"]), st.floats(0, 100)), max_size=60))
def test_an_open_circuit_never_has_two_probes(steps):
    circuit, now, probing = Circuit(), 0.0, False
    for step, later in steps:
        now += later
        if step == "wait":
            was_open, wait = circuit.is_open, circuit.wait(now)
            assert wait is None or 0 < wait <= LONGEST_PAUSE
            if was_open and wait is None:
                assert not probing
                probing = True
        else:
            circuit.failed(now, None) if step == "failed" else circuit.answered()
            probing = False
