"""The suite for stores can fail: statements with one word wrong are found out by it."""

from __future__ import annotations

import itertools
import re
import shutil
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from aftercommit.events.envelope import EventStatus
from aftercommit.events.outcome import Retry
from aftercommit.ports import Colour
from aftercommit.stores.sql.statements import Statements, TableNames
from aftercommit.stores.sqlite import target
from aftercommit.testing import SqlConformance, StoreConformance
from aftercommit.testing.fidelity import HANDLERS
from aftercommit.testing.runs import PASSES
from tests.stores.sqlite_hooks import SqliteHooks

PACKAGE = target.DIALECT.package

_serial = itertools.count(1)


class Mutant(SqliteHooks, SqlConformance, StoreConformance):
    """SQLite with a wrong word in it."""

    colour = Colour.BLOCKING

    def __init__(self, path: Path) -> None:
        self.path = path


def spelled(statement: str) -> str:
    """A statement of SQLite's or of everybody's with all its words said, but for these few."""
    said = {"fence": "<fence>", "held": "<held>"}
    dialect = replace(
        target.DIALECT, now="<now>", words={**target.DIALECT.words, **said}, marker=lambda number: f"<{number}>"
    )
    found = Statements(dialect, TableNames("outbox_event"))[statement]
    text = re.sub(r"<(\d+)>", lambda marker: f":{found.names[int(marker[1]) - 1]}", found.sql)
    text = re.sub(r"<(now|fence|held)>", r"{\1}", text).replace('"outbox_event"', "{table}")
    return re.sub(r'"outbox_(\w+)"', r"{\1_table}", text)


@pytest.fixture
def bites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Whether a test of the suite fails when these statements read otherwise."""

    def run(test: str, changes: dict[str, tuple[str, str]], **arguments: Any) -> bool:
        package = f"mutant_{next(_serial)}"
        shutil.copytree(str(files(PACKAGE).joinpath("")), tmp_path / package)
        for statement, (word, other) in changes.items():
            text = spelled(statement)
            assert word in text, f"{statement} has no {word!r}"
            (tmp_path / package / "sql" / f"{statement}.sql").write_text(text.replace(word, other))
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(target, "DIALECT", replace(target.DIALECT, package=package))
        try:
            getattr(Mutant(tmp_path / "mutant.db"), test)(**arguments)
        except Exception:
            return True
        return False

    return run


FENCE = {
    "row": "{table}.event_id = held.event_id",
    "handler": "{table}.handler_id = held.handler_id",
    "owner": "locked_by = held.owner",
    "epoch": "lease_epoch = held.epoch",
}

#: The loss of a lease that each part of the fence is there for.
LOSSES = {"handler": "of another handler", "owner": "by another owner", "epoch": "under an older epoch"}


@pytest.mark.parametrize("part", LOSSES)
@pytest.mark.parametrize(
    "statement", ["done", "retry", "dead", "defer", "release", "mark_suspect", "renew", "done_in_part"]
)
def test_a_fence_with_a_gap_is_seen(bites: Any, statement: str, part: str) -> None:
    gap = " AND ".join(text for name, text in FENCE.items() if name != part)
    changes = {statement: ("{fence}", gap)}
    if statement == "renew":  # which looks first
        changes["renewable"] = ("{fence}", gap)
    assert bites("test_a_lost_lease_changes_nothing", changes, loss=LOSSES[part])


#: By the test that finds it: a statement, a word of it, and what it says instead.
MUTATIONS: dict[str, list[tuple[str, str, str]]] = {
    "test_who_joins_is_a_member_once": [
        ("fleet_members", "{now} - heartbeat_at", "heartbeat_at"),
    ],
    "test_the_silent_are_removed_but_not_who_removes_them": [
        ("fleet_silent", "AND id <> :but", "AND :but = :but"),
    ],
    "test_who_leaves_owns_nothing_and_may_leave_again": [
        ("fleet_give_all", "owner = NULL", "owner = owner"),
        ("fleet_give_all", "epoch = epoch + 1, ", ""),
        ("fleet_give_all", "WHERE owner = :id", "WHERE :id = :id"),
        ("fleet_leave", "WHERE id = :id", "WHERE id = :id AND 0"),
    ],
    "test_a_duty_is_had_by_who_wrote_over_what_stood_there": [
        ("duty_take", "AND value = :over", "AND :over = :over"),
        ("duty_take", "WHERE name = :duty", "WHERE name LIKE 'duty %' AND :duty = :duty"),
    ],
    "test_what_is_free_can_be_taken": [
        ("fleet_take", "expires_at = {now} + :lasts", "expires_at = :lasts"),
        ("fleet_partitions", "expires_at - {now}", "expires_at"),
    ],
    "test_what_changed_since_it_was_seen_is_not_taken": [
        ("fleet_take", "AND epoch = json_extract(seen.value, '$[1]')", ""),
    ],
    "test_what_somebody_owns_is_not_taken_before_its_time_is_over": [
        ("fleet_take", "AND (owner IS NULL OR expires_at <= {now})", ""),
        ("fleet_take", "OR expires_at <= {now}", ""),
    ],
    "test_a_heartbeat_prolongs_what_is_owned_and_nobody_elses": [
        ("fleet_prolong", "WHERE owner = :id", "WHERE :id = :id"),
        ("fleet_prolong", "{now} + :lasts", "expires_at + 0 * :lasts"),
        ("fleet_owned", "WHERE owner = :id", "WHERE :id = :id"),
    ],
    "test_only_the_owner_gives_and_only_under_the_epoch_it_knows": [
        ("fleet_give", "AND owner = :id", "AND :id = :id"),
        ("fleet_give", "AND epoch = json_extract(seen.value, '$[1]')", ""),
        ("fleet_give", "epoch = epoch + 1", "epoch = epoch"),
        ("fleet_give", "expires_at = {now}", "expires_at = NULL"),
    ],
    "test_the_lag_of_a_partition_is_the_age_of_its_oldest_unfinished_event": [
        ("fleet_lags", "min(created_at)", "max(created_at)"),
        ("fleet_lags", "WHERE status IN (0, 2)", ""),
    ],
    "test_a_held_row_is_nobody_elses": [
        ("claim_select", "AND (locked_by IS NULL OR lease_until <= {now})", ""),
    ],
    "test_a_lease_that_ran_out_is_taken_over_as_a_suspect": [
        ("claim_select", "OR lease_until <= {now}", ""),
        ("claim_select", "locked_by <> :owner", "0"),
    ],
    "test_a_lease_of_its_own_that_ran_out_is_no_suspect": [
        ("claim_select", "locked_by <> :owner", "1"),
    ],
    "test_a_delayed_event_is_found_when_its_time_has_come": [
        ("claim_select", "AND available_at <= {now}", ""),
    ],
    "test_rows_come_in_order_of_position": [
        ("claim_select", "ORDER BY available_at, position", "ORDER BY position"),
    ],
    "test_young_rows_are_skipped_when_asked_to": [
        ("claim_select", "AND created_at <= {now} - :skip_recent", ""),
    ],
    "test_the_envelope_is_the_same_on_every_redelivery": [
        ("claim_select", "status IN (0, 2)", "status = 0"),
    ],
    "test_a_floor_passes_over_what_an_earlier_claim_saw": [
        ("claim_select", "> (:floor_at", ">= (:floor_at"),
    ],
    "test_a_claim_leases_up_to_its_limit": [
        ("claim_select", "LIMIT :limit", ""),
        ("claim_mark", "lease_epoch + 1", "lease_epoch"),
        ("claim_mark", "{now} + :lock_timeout", "{now}"),
    ],
    "test_a_claim_tells_when_the_next_row_falls_due": [
        ("next_due", "min(available_at)", "max(available_at)"),
    ],
    "test_an_explicit_time_is_taken_as_it_is": [
        ("insert", "coalesce(:available_at, {now} + :delay)", "{now} + :delay"),
    ],
    "test_content_type_and_payload_version_come_back": [
        ("insert", ":payload_version", "1"),
    ],
    "test_an_event_with_an_owner_is_born_leased": [
        ("insert_leased", ":lock_timeout, 1", ":lock_timeout, 0"),
    ],
    "test_success_clears_the_error_of_an_earlier_attempt": [
        ("done", "last_error = NULL, ", ""),
    ],
    "test_done_ends_the_row": [
        ("done", "done_at = {now}, ", ""),
    ],
    "test_retry_counts_keeps_the_error_and_waits": [
        ("retry", "attempts + 1", "attempts"),
        ("retry", "{now} + held.delay", "{now}"),
    ],
    "test_a_limit_is_judged_on_the_count_in_the_row": [
        ("retry", "THEN 3 ELSE 2", "THEN 2 ELSE 2"),
        ("retry", "THEN {now} END", "THEN NULL END"),
        ("retry", "attempts + 1 >= held", "attempts >= held"),
        ("retry", "attempts + 1 >= held", "1 >= held"),
    ],
    "test_handlers_that_are_done_are_known_to_the_next_claim": [
        ("retry", "coalesce(held.done, done_handlers)", "held.done"),
    ],
    "test_defer_counts_nothing": [
        ("defer", "status = 2", "status = 2, attempts = attempts + 1"),
    ],
    "test_dead_ends_the_row_with_its_error": [
        ("dead", "held.counted", "1"),
    ],
    "test_release_changes_the_lease_alone": [
        ("release", "lease_epoch + 1", "lease_epoch"),
        ("release", "THEN '' END", "THEN '' ELSE locked_by END"),
    ],
    "test_only_a_release_of_what_was_started_is_a_report": [
        ("release", "ELSE abandoned END", "ELSE 0 END"),
        ("release", "WHEN 1 THEN 0", "WHEN 1 THEN abandoned"),
    ],
    "test_a_suspect_that_was_given_back_unstarted_stays_one": [
        ("release", "WHEN -2 THEN abandoned - 1", "WHEN -2 THEN 0"),
        ("release", "WHEN -2 THEN abandoned - 1 ", ""),
        ("release", "CASE WHEN held.counted < 0 THEN '' END", "NULL"),
        ("release", "CASE WHEN held.counted < 0 THEN '' END", "held.owner"),
    ],
    "test_a_suspect_that_begins_is_counted_until_it_reports": [
        ("mark_suspect", "abandoned + held.counted", "abandoned"),
        ("mark_suspect", "abandoned + held.counted", "abandoned + 1"),
    ],
    "test_many_rows_survive_at_once": [
        ("surviving", "event_id IN", "event_id NOT IN"),
    ],
    "test_dead_letters_come_oldest_first_up_to_a_limit": [
        ("query_dead", "ORDER BY position", "ORDER BY position DESC"),
    ],
    "test_only_dead_rows_are_dead_letters": [
        ("query_dead", "WHERE status = 3", "WHERE status > 0"),
    ],
    "test_a_replayed_event_is_new_again": [
        ("replay", "lease_epoch + 1", "lease_epoch"),
    ],
    "test_a_replay_forgets_which_handlers_were_done": [
        ("replay", "done_handlers = NULL, ", ""),
    ],
    "test_replaying_all_goes_by_the_filter": [
        ("replay_positions", "lease_epoch + 1", "lease_epoch"),
    ],
    "test_replaying_all_goes_once_over_the_table": [
        ("replayable", "position > :position", "position >= :position"),
    ],
    "test_only_dead_rows_are_replayed_or_discarded": [
        ("discard", "status = 3", "status IN (0, 3)"),
    ],
    "test_the_time_of_its_end_decides_and_not_its_birth": [
        ("purge", "done_at <= {now} - :older_than", "created_at <= {now} - :older_than"),
    ],
    "test_a_purge_deletes_the_oldest_first_up_to_its_limit": [
        ("purge", "ORDER BY ended_at", "ORDER BY position"),
    ],
    "test_a_purge_by_age_has_a_limit": [
        ("purge_aged", "LIMIT :limit", ""),
    ],
    "test_done_rows_are_counted_up_to_a_limit": [
        ("count_done", "AND status = 1", ""),
        ("count_done", "LIMIT :limit", ""),
    ],
    "test_unfinished_rows_are_counted_by_partition": [
        ("pending", "status IN (0, 2)", "status <> 1"),
        ("pending", "status IN (0, 2)", "status IN (0, 2) AND locked_by IS NULL"),
        ("pending", "status IN (0, 2)", "status = 0"),
    ],
    "test_the_backlog_counts_leases_that_stand": [
        ("backlog", "lease_until > {now}", "1"),
    ],
    "test_a_run_is_the_rows_of_its_key_in_order_of_position": [
        ("run_candidates", "AND coalesce(event_key, event_id) = near.order_key", ""),
    ],
    "test_a_run_has_so_many_rows_at_most_of_each_key": [
        ("run_candidates", "THEN :run ELSE", "THEN :run + 1 ELSE"),
        ("run_candidates", "AND NOT is_leased", ""),
    ],
    "test_rows_of_other_partitions_are_not_leased": [
        ("run_candidates", "AND {table}.partition_no = near.partition_no", ""),
    ],
    "test_nothing_is_leased_from_a_row_on_that_is_not_due_or_not_free": [
        ("run_candidates", "min(is_due AND", "min(1 OR is_due AND"),
        ("run_candidates", "min(is_due AND NOT is_leased) OVER so_far", "is_due AND NOT is_leased"),
    ],
    "test_nothing_is_leased_behind_a_dead_row_that_blocks": [
        ("run_candidates", "WHEN :blocks THEN", "WHEN :blocks AND 0 THEN"),
    ],
    "test_a_dead_row_is_nothing_where_keys_continue": [
        ("run_candidates", "WHEN :blocks THEN", "WHEN :blocks IS NOT NULL THEN"),
    ],
    "test_nothing_of_a_key_is_leased_beside_a_lease_where_keys_do_not_stop": [
        ("run_candidates", "NOT is_held AND", "1 AND"),
    ],
    "test_rows_that_are_not_due_are_passed_over_where_keys_do_not_stop": [
        ("run_candidates", "< min(:run, due)", "< due"),
        ("run_candidates", "sum(is_due) OVER so_far - is_due", "0"),
    ],
    "test_a_lease_that_ran_out_is_taken_over_as_a_suspect_at_the_head_of_its_run": [
        ("run_lock", "locked_by <> :owner", "0"),
        ("run_candidates", "coalesce(lease_until > {now}, 0)", "1"),
    ],
    "test_a_head_behind_a_dead_row_is_blocked_where_the_rule_says_so": [
        ("heads", "coalesce(dead < position, 0)", "dead IS NOT NULL"),
        ("heads", "WHEN :blocks THEN", "WHEN :blocks IS NOT NULL THEN"),
    ],
    "test_a_head_that_is_leased_says_until_when": [
        ("heads", "AND row.lease_until > {now} THEN", "THEN"),
    ],
    "test_a_key_is_ready_when_any_row_is_due_where_keys_do_not_stop": [
        ("heads", "CASE WHEN :stops THEN available_at", "CASE WHEN :stops IS NOT NULL THEN available_at"),
        ("heads", "CASE WHEN :stops THEN leased_until", "CASE WHEN :stops IS NOT NULL THEN leased_until"),
    ],
    "test_a_walk_goes_over_all_partitions_in_the_order_asked_for": [
        ("heads", "coalesce(event_key, event_id) > :after_key", "coalesce(event_key, event_id) >= :after_key"),
        ("heads", "coalesce(last.event_key, last.event_id, '')", "coalesce(last.event_key, last.event_id, :after_key)"),
    ],
    "test_rows_behind_a_dead_one_do_not_make_a_key_ready": [
        ("heads", "AND position < coalesce(head.dead, 9223372036854775807)", ""),
    ],
    "test_blocked_keys_are_told_with_their_first_dead_event": [
        ("blocked", "AND earlier.position < dead.position", "AND earlier.position > dead.position"),
    ],
    "test_a_dead_event_without_a_key_blocks_only_other_rows_of_itself": [
        ("blocked", "event_key IS NOT NULL OR", "1 OR"),
    ],
    "test_a_row_that_is_done_in_part_keeps_its_lease_and_what_was_done": [
        ("done_in_part", "held.done", "NULL"),
        ("done_in_part", "held.done", "held.done, locked_by = NULL"),
        ("done_in_part", "held.done", "held.done, abandoned = 1"),
    ],
    "test_completed_rows_are_deleted_when_asked_to": [
        ("delete", "{fence}", "{table}.event_id = held.event_id"),
    ],
}

ARGUMENTS: dict[str, dict[str, Any]] = {
    "test_content_type_and_payload_version_come_back": {"content_type": "a", "version": 2},
    "test_handlers_that_are_done_are_known_to_the_next_claim": {"outcome": Retry(timedelta(0), "no", HANDLERS)},
    "test_a_limit_is_judged_on_the_count_in_the_row": {"limit": 6},
    "test_dead_ends_the_row_with_its_error": {"counted": False, "attempts": 0},
    "test_only_dead_rows_are_replayed_or_discarded": {"status": EventStatus.NEW},
    "test_nothing_is_leased_from_a_row_on_that_is_not_due_or_not_free": {"why": "later", "number": 1},
    "test_nothing_is_leased_behind_a_dead_row_that_blocks": {"number": 1},
    "test_nothing_of_a_key_is_leased_beside_a_lease_where_keys_do_not_stop": {"number": 3},
    "test_rows_that_are_not_due_are_passed_over_where_keys_do_not_stop": {"rule": PASSES},
    "test_a_key_is_ready_when_any_row_is_due_where_keys_do_not_stop": {"rule": PASSES},
    "test_a_walk_goes_over_all_partitions_in_the_order_asked_for": {"limit": 2},
}


@pytest.mark.parametrize(
    ("test", "statement", "word", "other"), [(test, *each) for test, found in MUTATIONS.items() for each in found]
)
def test_a_wrong_word_is_seen(bites: Any, test: str, statement: str, word: str, other: str) -> None:
    assert bites(test, {statement: (word, other)}, **ARGUMENTS.get(test, {}))


@pytest.mark.parametrize("test", MUTATIONS)
def test_the_right_words_pass(bites: Any, test: str) -> None:
    """So that the tests above fail for the right reason."""
    assert not bites(test, {}, **ARGUMENTS.get(test, {}))
