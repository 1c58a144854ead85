"""Runs of keys on SQL Server without a server: the statements by a parser, the steps by a stand-in."""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
import sqlglot
from sqlglot import exp

from aftercommit.events.order import STRICT, KeyClaimRequest, KeyRule, OrderKey
from aftercommit.runtime.threads import run
from aftercommit.stores.sql.runs import ConfirmedRuns, run_values
from aftercommit.stores.sql.statements import Statements, TableNames
from aftercommit.stores.sqlite.target import DIALECT as SQLITE
from aftercommit.stores.sqlserver.dialect import DIALECT
from aftercommit.testing.kit import LEASE

STATEMENTS = Statements(DIALECT, TableNames("outbox_event", "shop", DIALECT.quotes))


def last(name: str) -> exp.Expression:
    return [each for each in sqlglot.parse(STATEMENTS[name].sql, dialect="tsql") if each is not None][-1]


# ---------------------------------------------------------------- the statements


def test_a_lock_returns_the_columns_that_every_claim_returns() -> None:
    theirs = sqlglot.parse_one(Statements(SQLITE, TableNames("ob_x"))["run_lock"].sql, dialect="sqlite").expressions
    names = [each.name if isinstance(each, exp.Column) else "" for each in theirs]
    assert [each.name if isinstance(each, exp.Column) else "" for each in last("run_lock").expressions] == names


def test_a_list_has_the_columns_of_every_list() -> None:
    assert [each.name for each in last("run_candidates").expressions] == ["number", "position", "is_due", "lease_epoch"]
    assert "ORDER BY number, position" in STATEMENTS["run_candidates"].sql


@pytest.mark.parametrize("name", ["heads", "run_candidates"])
def test_keys_are_sought_by_the_literal_filters_of_their_indexes(name: str) -> None:
    sql = STATEMENTS[name].sql
    for index, status in (("order", "status IN (0, 2)"), ("blocking", "status = 3")):
        for hinted in re.findall(rf"INDEX\(\[outbox_event_{index}\]\)\)\s+WHERE (.+?)ORDER BY", sql, re.DOTALL):
            assert status in hinted
            assert "partition_no = " in hinted
            assert "order_key" in hinted


def test_the_indexes_are_filtered_literally_and_keys_are_bytes() -> None:
    """As text "a" equals "a " under every collation."""
    column, order, blocking = STATEMENTS.migrations()[1].statements
    assert column.endswith("ADD order_key AS CAST(COALESCE(event_key, event_id) AS varbinary(1020))")
    assert order.endswith("(partition_no, order_key, position) WHERE status IN (0, 2)")
    assert blocking.endswith("(partition_no, order_key, position) WHERE status = 3")
    assert 2 * 2 * 255 == 1020, "two units of two bytes for each character"
    for name in ("heads", "run_candidates"):
        assert "AS nvarchar(510)) AS varbinary(1020))" in STATEMENTS[name].sql, name


# ---------------------------------------------------------------- the steps


class Server:
    """Answers lists one after the other, locks what it is told to, and remembers what was leased."""

    def __init__(self, lists: Sequence[list[tuple[int, int, int, int]]], locked: set[int]) -> None:
        self._lists = iter(lists)
        self._locked = locked
        self.changed: dict[str, object] = {}

    async def transact(self, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        return await work(self)

    async def fetch(self, sql: str, parameters: Sequence[object]) -> list[Any]:
        if sql == STATEMENTS["run_candidates"].sql:
            return list(next(self._lists))
        assert sql == STATEMENTS["run_lock"].sql
        assert len(parameters) == 2
        return [(position,) for position in sorted(self._locked)]

    async def execute(self, sql: str, parameters: Sequence[object]) -> int:
        (name,) = [name for name in ("claim_mark", "pass_over") if STATEMENTS[name].sql == sql]
        self.changed[name] = parameters[STATEMENTS[name].names.index("positions")]
        return 1


def claimed(server: Server, rule: KeyRule = STRICT) -> list[int]:
    request = KeyClaimRequest("alice", [OrderKey(7, "a"), OrderKey(7, "b")], 10, LEASE, 0.0, rule)
    runs = ConfirmedRuns(server, STATEMENTS, DIALECT)  # type: ignore[arg-type]
    values = {**run_values(request, DIALECT), "owner": "alice", "lock_timeout": 1}
    rows = run(runs.claim_keys(request, values))
    return [row[0] for row in rows]


def test_a_run_is_what_both_lists_have_and_what_was_locked() -> None:
    listed = [(0, 1, 1, 0), (0, 2, 1, 0), (1, 5, 1, 0)]
    server = Server([listed, listed], {1, 2, 5})
    assert claimed(server) == [1, 2, 5]
    assert server.changed == {"claim_mark": "[1,2,5]"}


def test_a_row_that_only_the_second_list_has_ends_the_run_before_it() -> None:
    """It was written before the others, and the first scan had passed its place already."""
    first = [(0, 2, 1, 0), (0, 4, 1, 0), (1, 5, 1, 0)]
    assert claimed(Server([first, [(0, 1, 1, 0), *first]], {2, 4, 5})) == [5]
    assert claimed(Server([first, [first[0], (0, 3, 1, 0), *first[1:]]], {2, 4, 5})) == [2, 5]


@pytest.mark.parametrize("stops", [True, False])
def test_what_was_written_behind_the_first_list_is_for_the_next_claim(stops: bool) -> None:
    first = [(0, 1, 1, 0), (0, 2, 1, 0)]
    later = [*first, (0, 3, 1, 0), (1, 4, 1, 0)]
    assert claimed(Server([first, later], {1, 2}), KeyRule(stops=stops)) == [1, 2]


def test_a_key_that_somebody_leased_meanwhile_is_left_alone() -> None:
    first = [(0, 1, 1, 0), (1, 5, 1, 0)]
    assert claimed(Server([first, first[1:]], {1, 5})) == [5]


def test_rows_that_are_passed_over_get_a_new_epoch_and_no_lease() -> None:
    listed = [(0, 1, 0, 0), (0, 2, 1, 0)]
    server = Server([listed, listed], {1, 2})
    assert claimed(server, KeyRule(stops=False)) == [2]
    assert server.changed == {"claim_mark": "[2]", "pass_over": "[1]"}


def test_nothing_is_locked_when_nothing_is_listed() -> None:
    server = Server([[]], set())
    assert claimed(server) == []
    assert server.changed == {}
