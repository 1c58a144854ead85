"""Promise 14: a forked child has an owner id, connections and threads of its own, and its parent notices nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.promises.harness import Fleet

#: The same on each database; the programs that fork choose their runtime themselves.
in_threads = pytest.mark.parametrize("fleet", ["sqlite", "postgres", "mariadb", "redis"], indirect=True)

SERVICES = ["aftercommit-keeper", "aftercommit-poller", "aftercommit-settler"]


def forking(fleet: Fleet, program: str) -> Any:
    """What came of a program that forks."""
    process = fleet.process("forking", {**fleet.place("threads"), "program": program})
    answer = process.answer(60)
    process.finish()
    return answer


def returned(said: dict[str, Any]) -> Any:
    """What a child gave back; else its story is the message."""
    assert "returned" in said, said.get("trace", said)
    return said["returned"]


def each_delivered_once(fleet: Fleet, count: int) -> None:
    assert fleet.journal.counts("effect") == dict.fromkeys(fleet.all_delivered(), 1)
    assert len(fleet.statuses()) == count


@in_threads
def test_promise_14_fork_safe_a_child_of_a_started_outbox_works_on_its_own_and_the_parent_goes_on(fleet: Fleet) -> None:
    """F26, F64."""
    found = forking(fleet, "started_before_the_fork")
    parent, child = found["parent"], returned(found["child"])
    assert parent["pid"] != child["pid"]
    assert parent["owner"] != child["owner"]
    for process in (parent, child):
        assert set(SERVICES) <= set(process["threads"])
    assert parent["connections"]
    assert not set(parent["connections"]) & set(child["connections"])
    assert found["after"]["owner"] == parent["owner"]
    if fleet.database == "sqlite":
        assert set(parent["connections"]) <= set(found["after"]["connections"])
    assert not set(child["connections"]) & set(found["after"]["connections"])
    each_delivered_once(fleet, 15)


@in_threads
def test_promise_14_fork_safe_a_child_of_an_instance_is_another_instance(fleet: Fleet) -> None:
    found = forking(fleet, "ordered_before_the_fork")
    child = returned(found["child"])
    assert child["owner"] != found["owner"]
    assert child["owner"].startswith("shop/"), "the name that was chosen is both's, the id is not"
    assert found["owner"].startswith("shop/")
    assert sorted(pid for pid, _ in child["members"]) == sorted(child["pids"])
    assert {id for _, id in child["members"]} == {child["owner"], found["owner"]}
    each_delivered_once(fleet, 15)


@in_threads
def test_promise_14_fork_safe_what_waits_in_the_parents_memory_is_not_delivered_by_the_child(fleet: Fleet) -> None:
    found = forking(fleet, "memory_at_the_fork")
    returned(found["child"])
    assert found["early"] == []
    each_delivered_once(fleet, 26)


@in_threads
def test_promise_14_fork_safe_locks_that_other_threads_hold_do_not_stop_the_child(fleet: Fleet) -> None:
    found = forking(fleet, "locks_at_the_fork")
    returned(found["child"])
    each_delivered_once(fleet, 7)


def test_promise_14_fork_safe_a_transaction_of_another_thread_does_not_lock_the_child_out(fleet: Fleet) -> None:
    """F91: SQLite keeps its locks per file in the memory of the process, and a fork copies them."""
    found = forking(fleet, "transaction_of_another_thread")
    assert found["was_inside"]
    returned(found["child"])
    each_delivered_once(fleet, 7)


def test_promise_14_fork_safe_a_fork_waits_for_a_connection_that_is_being_opened(fleet: Fleet) -> None:
    """SQLite has mutexes of the process in its hands while it opens a file; a copy of them is locked in the child for
    ever, which then hangs in its own sqlite3.connect(). Seen in one of 150 forks of a parent that was just starting."""
    assert returned(forking(fleet, "opening_at_the_fork")["child"]) is False


@in_threads
def test_promise_14_fork_safe_children_of_a_busy_parent_can_write(fleet: Fleet) -> None:
    """F91: a parent that delivers is in a transaction at almost any moment."""
    found = forking(fleet, "busy_at_the_fork")
    assert found["failed"] is None, found
    assert found["children"] == (30 if fleet.database == "sqlite" else 10)


@pytest.mark.parametrize(
    ("program", "count"), [("own_transaction_of_the_child", 1), ("own_transaction_of_the_child_async", 1)]
)
def test_promise_14_fork_safe_a_child_forked_inside_a_transaction_is_told_that_it_has_inherited_the_lock(
    fleet: Fleet, program: str, count: int
) -> None:
    """SQLite keeps its locks in the memory of the process, and forbids to end the parent's copy of the connection in
    the child: such a child can never write to that file, and says so."""
    said = forking(fleet, program)["child"]
    assert said["raised"] == "StoreBusy", said
    assert "forked inside a transaction" in said["trace"]
    each_delivered_once(fleet, count)


@in_threads
def test_promise_14_fork_safe_a_child_cannot_write_into_a_transaction_of_its_parent(fleet: Fleet) -> None:
    found = forking(fleet, "transaction_of_the_forking_thread")
    assert (found["ambient"].get("raised"), found["passed"].get("raised")) == ("NotInTransaction", "NotInTransaction")
    assert found["is_still_open"]
    each_delivered_once(fleet, 1)
    assert set(fleet.statuses()) == {found["inside"]}


@in_threads
@pytest.mark.parametrize(
    "program", ["inherited_commit", "inherited_end_of_block", "inherited_statement", "inherited_rollback"]
)
def test_promise_14_fork_safe_a_child_cannot_end_or_use_a_transaction_of_its_parent(fleet: Fleet, program: str) -> None:
    found = forking(fleet, program)
    assert found["seen"] == {"returned": False}, "the child has committed what its parent had only begun"
    assert found["is_still_open"]
    each_delivered_once(fleet, 1)
    if program in ("inherited_commit", "inherited_statement"):
        assert found["said"].get("raised") == "NotInTransaction", found["said"]


@in_threads
@pytest.mark.parametrize("program", ["preloaded", "preloaded_async"])
def test_promise_14_fork_safe_a_preloaded_outbox_starts_in_each_of_its_children(fleet: Fleet, program: str) -> None:
    """F64, F65: as under gunicorn with preload_app."""
    children = [returned(child) for child in forking(fleet, program)["children"]]
    assert len({child["owner"] for child in children}) == 3
    assert len({event_id for child in children for event_id in child["ids"]}) == 150
    each_delivered_once(fleet, 150)


def test_promise_14_fork_safe_a_child_of_a_running_loop_uses_the_outbox_on_its_own_loop(fleet: Fleet) -> None:
    found = forking(fleet, "forked_from_a_running_loop")
    assert returned(found["child"])["owner"] != found["owner"]
    each_delivered_once(fleet, 51)


def test_promise_14_fork_safe_a_grandchild_of_a_started_outbox_delivers_too(fleet: Fleet) -> None:
    found = forking(fleet, "forked_twice")
    ids, is_started = returned(returned(found["child"]))
    assert len(ids) == 1
    assert is_started


@pytest.mark.parametrize(
    ("fleet", "program"),
    [
        ("sqlite", "forked_inside_a_handler"),
        ("sqlite", "forked_inside_a_handler_async"),
        ("postgres", "forked_inside_a_handler"),
    ],
    indirect=["fleet"],
)
def test_promise_14_fork_safe_a_child_that_returns_from_a_handler_is_no_worker_of_its_parent(
    fleet: Fleet, program: str
) -> None:
    """It ends there: everything that it could go back to is its parent's."""
    found = forking(fleet, program)
    assert set(map(str, found["ended"].values())) == {str({"returns": 0, "exits": 3, "raises": 1})}, found
    assert {line.pid for line in fleet.journal.lines("effect")} == {found["pid"]}
    each_delivered_once(fleet, 8 * len(found["ended"]))


@in_threads
def test_promise_14_fork_safe_children_of_multiprocessing_work_on_their_own(fleet: Fleet) -> None:
    found = forking(fleet, "forked_by_multiprocessing")
    assert found["ended"] == [0, 0]
    owners = {process["owner"] for process in (*found["children"], found["after"])}
    assert len(owners) == 3
    each_delivered_once(fleet, 20)


@pytest.mark.parametrize("fleet", ["postgres", "mariadb", "redis"], indirect=True)
@pytest.mark.parametrize("program", ["own_transaction_of_the_child", "own_transaction_of_the_child_async"])
def test_promise_14_fork_safe_a_child_forked_inside_a_transaction_opens_its_own(fleet: Fleet, program: str) -> None:
    """A server knows nothing of forks: the child's transaction is on a connection of its own."""
    returned(forking(fleet, program)["child"])
    assert fleet.journal.counts("effect") == dict.fromkeys(fleet.all_delivered(), 1)


@pytest.mark.parametrize("fleet", ["postgres", "mariadb", "redis"], indirect=True)
def test_promise_14_fork_safe_the_sessions_of_the_parent_outlive_its_children(fleet: Fleet) -> None:
    found = forking(fleet, "sessions_after_the_end_of_a_child")
    assert found["ends"] == [0, 0]
    assert found["before"]
    assert set(found["before"]) <= set(found["after"])
    each_delivered_once(fleet, 10)


@pytest.mark.parametrize(
    ("fleet", "program"),
    [
        *((fleet, "killed_beside_its_child") for fleet in ("postgres", "mariadb", "redis")),
        *((fleet, "killed_beside_its_child_with_an_engine") for fleet in ("postgres", "mariadb")),
        *((fleet, "killed_on_a_loop_beside_its_child") for fleet in ("postgres", "mariadb", "redis")),
    ],
    indirect=["fleet"],
)
def test_promise_14_fork_safe_the_sessions_of_a_killed_parent_end_although_its_child_lives(
    fleet: Fleet, program: str
) -> None:
    """A session that went on would keep the rows of its transaction locked, and all others would pass over them."""
    found = forking(fleet, program)
    assert found["had"]
    assert not found["has"]


def test_promise_14_fork_safe_a_child_leaves_its_parents_private_database_alone(fleet: Fleet) -> None:
    assert forking(fleet, "private_database")["ended"] == 0
    assert len(fleet.journal.ids("effect")) == 3
