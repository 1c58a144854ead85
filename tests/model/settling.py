"""How outcomes, releases and renewals reach the table: all of them through the fence (row, owner, epoch)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tests.model.bugs import Bug
from tests.model.explorer import Step
from tests.model.rules import Rules, forget, instance, let_go, name_of, with_copy, with_row, with_stray
from tests.model.state import GONE, Copy, Lost, Memory, Outcome, Phase, Row, Statement, Status, Table

STATUS_OF = {
    Outcome.DONE: Status.DONE,
    Outcome.RETRY: Status.RETRY,
    Outcome.DEFER: Status.RETRY,
    Outcome.DEAD: Status.DEAD,
}


def is_fenced_in(rules: Rules, me: int, row: Row, lease: Copy | Statement) -> bool:
    """Whether owner and epoch of the lease still stand on the row."""
    is_owner = row.owner == me or Bug.FENCE_WITHOUT_OWNER in rules.bugs
    is_epoch = lease.fits or Bug.FENCE_WITHOUT_EPOCH in rules.bugs
    return is_owner and is_epoch


class _Written(NamedTuple):
    """What a statement made of table and memory."""

    table: Table
    memory: Memory
    was_accepted: bool
    lost: Lost | None = None
    broken: str = ""


def settle(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """Write what was reported: one after the other in any order, which is also what a group does."""
    for place, copy in enumerate(memory.copies):
        if copy is None or copy.phase is not Phase.REPORTED or copy.outcome is None:
            continue
        if rules.world.has_slow_settles:
            yield from _settle_slowly(rules, me, table, memory, place, copy)
            continue
        written = _write(rules, me, table, memory, place, Statement(copy.outcome, copy.fits, copy.holds))
        words = f"{instance(me)} settles {name_of(place)} as {copy.outcome}{_refusal(written)}"
        after = _answered(rules, written.memory, place, was_accepted=written.was_accepted)
        yield Step(words, written.table, after, written.lost, broken=written.broken)
    for place, stray in enumerate(memory.strays):
        if stray is not None:
            written = _write(rules, me, table, with_stray(memory, place, None), place, stray)
            words = f"a settle of {name_of(place)} as {stray.outcome}, long given up by {instance(me)}, is written"
            yield Step(words + _refusal(written), written.table, written.memory, written.lost, broken=written.broken)


def _settle_slowly(rules: Rules, me: int, table: Table, memory: Memory, place: int, copy: Copy) -> Iterator[Step]:
    who, event, sent = instance(me), name_of(place), copy.sent
    if sent is None:
        sent = Statement(copy.outcome or Outcome.DONE, copy.fits, copy.holds)
        yield Step(f"{who} sends {copy.outcome} of {event}", table, with_copy(memory, place, copy._replace(sent=sent)))
        return
    unsure = with_copy(memory, place, copy._replace(sent=None, is_unsure=True))
    if sent.was_accepted is None:
        written = _write(rules, me, table, memory, place, sent)
        words = f"{sent.outcome} of {event} is written{_refusal(written)}"
        after = _with_answer(written.memory, place, was_accepted=written.was_accepted)
        yield Step(words, written.table, after, written.lost, broken=written.broken)
        yield Step(f"{who} gives up waiting for {event}", table, with_stray(unsure, place, sent), is_fault=True)
        return
    after = _answered(rules, memory, place, was_accepted=sent.was_accepted)
    yield Step(f"{who} hears that {event} is settled", table, after)
    yield Step(f"{who} never hears that {event} is settled", table, unsure, is_fault=True)


def _with_answer(memory: Memory, place: int, *, was_accepted: bool) -> Memory:
    copy = memory.copies[place]
    if copy is None or copy.sent is None:
        return memory
    return with_copy(memory, place, copy._replace(sent=copy.sent._replace(was_accepted=was_accepted)))


def _refusal(written: _Written) -> str:
    return "" if written.was_accepted else ", which the fence refuses"


def _write(rules: Rules, me: int, table: Table, memory: Memory, place: int, statement: Statement) -> _Written:
    """One fenced statement in the database."""
    row, copy = table.rows[place], memory.copies[place]
    is_unfenced = Bug.UNFENCED_SETTLE if statement.outcome is not Outcome.RELEASE else Bug.RELEASE_WITHOUT_FENCE
    was_accepted = is_fenced_in(rules, me, row, statement) or is_unfenced in rules.bugs
    if not was_accepted:
        return _Written(table, memory, was_accepted)
    broken = _what_breaks(row, statement, copy)
    raised = (place,) if statement.outcome is Outcome.RELEASE else ()
    lost = Lost(raised=raised, taken=(place,))
    memory = forget(memory, lost)
    copy = memory.copies[place]
    if copy is not None:
        memory = with_copy(memory, place, copy._replace(was_written=True))
    settled = settled_row(rules, row, statement.outcome)
    if copy is not None and statement.outcome is Outcome.RELEASE:
        settled = _given_back(rules, settled, copy)
    return _Written(with_row(table, place, settled), memory, was_accepted, Lost(raised) if raised else None, broken)


def _given_back(rules: Rules, row: Row, copy: Copy) -> Row:
    """A suspect that was not started stays one, with what was counted before. It is taken over from nobody."""
    if copy.is_marked and Bug.MARK_IS_KEPT not in rules.bugs:
        row = row._replace(abandoned=0 if Bug.MARK_TAKES_ALL_COUNTS in rules.bugs else row.abandoned - 1)
    if copy.is_suspect and Bug.GIVEN_BACK_IS_INNOCENT not in rules.bugs:
        row = row._replace(owner=GONE, is_expired=True)
    return row


def _what_breaks(row: Row, statement: Statement, copy: Copy | None) -> str:
    if not row.is_unfinished:
        return f"terminal is terminal: {statement.outcome} changes a row that is {row.status}"
    if not statement.holds:
        return f"fenced: {statement.outcome} of one who is not the holder changes the row"
    if copy is not None and copy.is_old and statement.outcome is not Outcome.RELEASE:
        return f"replayed is delivered anew: {statement.outcome} of a delivery that began before the replay is written"
    if copy is not None and copy.was_written and statement.outcome is not Outcome.RELEASE:
        return f"fenced: {statement.outcome} of one delivery is written twice"
    return ""


def settled_row(rules: Rules, row: Row, outcome: Outcome) -> Row:
    """The row as the outcome leaves it: nobody's."""
    if Bug.SETTLE_KEEPS_OWNER not in rules.bugs:
        row = row._replace(owner=None, is_expired=False)
    if outcome is Outcome.RELEASE:
        return row
    is_passed = outcome is Outcome.DEAD and not rules.world.blocks
    return row._replace(
        status=STATUS_OF[outcome],
        is_due=outcome not in (Outcome.RETRY, Outcome.DEFER),
        abandoned=0,
        had_effect=row.had_effect or is_passed,
    )


def _answered(rules: Rules, memory: Memory, place: int, *, was_accepted: bool) -> Memory:
    """The store has answered: let go of what is settled, and of a key whose lease was lost."""
    copy = memory.copies[place]
    if copy is None:
        return memory
    is_leased_anew = copy.sent is not None and copy.fits and not copy.sent.fits
    if is_leased_anew and not (was_accepted and Bug.ANSWER_DROPS_NEWER_LEASE in rules.bugs):
        return with_copy(memory, place, copy._replace(sent=None))
    memory = with_copy(memory, place, None)
    if was_accepted or Bug.REST_KEPT_AFTER_LOSS in rules.bugs:
        return memory
    return let_go(rules, memory, place)


def renew(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """Prolong one lease; what cannot be renewed is not started, nor what follows it."""
    if not rules.world.renews:
        return
    for place, copy in enumerate(memory.copies):
        if copy is None or copy.is_overtaken:
            continue
        row = table.rows[place]
        is_matched = is_fenced_in(rules, me, row, copy) or (
            Bug.RENEWAL_MATCHES_AFTER_SETTLE in rules.bugs and copy.fits
        )
        if is_matched:
            after = with_row(table, place, row._replace(is_expired=False)), _in_time(memory, place, copy)
            broken = "" if copy.holds else "fenced: a renewal of one who is not the holder changes the row"
            words = f"{instance(me)} renews {name_of(place)}"
        else:
            after, broken = (table, _not_renewed(rules, memory, place, copy)), ""
            words = f"{instance(me)} cannot renew {name_of(place)}"
        if after != (table, memory) or broken:
            yield Step(words, *after, broken=broken)


def _in_time(memory: Memory, place: int, copy: Copy) -> Memory:
    if copy.phase is Phase.REPORTED:
        return memory
    return with_copy(memory, place, copy._replace(is_late=False))


def _not_renewed(rules: Rules, memory: Memory, place: int, copy: Copy) -> Memory:
    if copy.phase is Phase.REPORTED:  # its settle will tell
        return memory
    left = None if copy.phase is Phase.WAITING else copy._replace(is_late=True)
    memory = with_copy(memory, place, left)
    return memory if Bug.REST_KEPT_AFTER_LOSS in rules.bugs else let_go(rules, memory, place)
