"""One row, several handlers: each gets one verdict, and the row ends when all have one."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from aftercommit.delivery.outcomes import combine, still_to_run
from aftercommit.events.outcome import DONE, Dead, Defer, Done, Release, Retry
from aftercommit.events.redact import MAX_ERROR_LENGTH

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)


def test_all_done_is_done():
    assert combine({"a": DONE, "b": DONE}, ()) == DONE
    assert combine({}, ("a", "b")) == DONE


def test_a_failure_keeps_the_row_and_what_succeeded():
    assert combine({"a": DONE, "b": Retry(MINUTE, "no")}, ("c",)) == Retry(MINUTE, "b: no", ("c", "a"))


def test_nobody_is_called_before_its_time():
    outcomes = {"a": Retry(MINUTE, "no"), "b": Defer(SECOND)}
    assert combine(outcomes, ()) == Retry(MINUTE, "a: no")
    assert combine({"a": Defer(SECOND), "b": Defer(MINUTE), "c": DONE}, ()) == Defer(MINUTE, ("c",))


def test_a_row_may_fail_as_often_as_any_of_its_handlers_that_go_on():
    first, second = Retry(SECOND, "no", limit=3), Retry(SECOND, "no", limit=5)
    assert combine({"a": first, "b": second, "c": DONE, "d": Dead("no")}, ()).limit == 5
    assert combine({"a": first, "b": Defer(SECOND)}, ()).limit is None, "b has not failed"
    assert combine({"a": first, "b": Release(was_started=True)}, ()).limit is None


def test_one_that_gave_up_is_remembered_while_others_go_on():
    first = combine({"a": Dead("no"), "b": Defer(SECOND), "c": DONE}, ())
    assert first == Retry(SECOND, "a: no", ("c", "!a"))
    assert still_to_run(["a", "b", "c"], first.done_handlers) == ["b"]
    assert combine({"b": DONE}, first.done_handlers) == Dead(
        "a: gave up at an earlier attempt", counted=False, done_handlers=("c", "b")
    )
    assert combine({"b": Dead("nor I")}, first.done_handlers) == Dead(
        "a: gave up at an earlier attempt; b: nor I", done_handlers=("c",)
    )


def test_an_interruption_keeps_what_was_done_before_it():
    interrupted = Release(was_started=True)
    assert combine({"a": DONE, "b": interrupted}, ()) == Release(was_started=True, done_handlers=("a",))
    assert combine({"a": Dead("no"), "b": interrupted}, ()) == Retry(timedelta(0), "a: no", ("!a",))


def test_errors_are_cut_together():
    outcome = combine({name: Dead("x" * MAX_ERROR_LENGTH) for name in "abc"}, ())
    assert len(outcome.error) <= MAX_ERROR_LENGTH


verdicts = st.sampled_from([DONE, Dead("no"), Retry(SECOND, "no"), Defer(SECOND), Release(was_started=True)])


@given(st.data(), st.sets(st.sampled_from("abcde"), min_size=1))
def test_every_handler_runs_until_it_has_a_verdict_and_never_after_it(data, ids):
    ordered, done, ended = sorted(ids), (), {}
    for _ in range(30):
        waiting = still_to_run(ordered, done)
        assert not set(waiting) & set(ended)
        outcomes = {name: data.draw(verdicts) for name in waiting}
        outcome = combine(outcomes, done)
        ended |= {name: each for name, each in outcomes.items() if isinstance(each, Done | Dead)}
        if isinstance(outcome, Done | Dead):
            assert set(ended) == ids
            assert isinstance(outcome, Dead) == any(isinstance(each, Dead) for each in ended.values())
            return
        assert set(ended) != ids
        done = outcome.done_handlers or done
