"""How a row comes into memory: born leased on the hot path, or claimed, key by key or one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.model.bugs import Bug
from tests.model.explorer import Step
from tests.model.rules import (
    Rules,
    forget,
    instance,
    let_go,
    name_of,
    released,
    reported,
    with_arriving,
    with_copy,
    with_row,
    with_stray,
)
from tests.model.state import Copy, Lost, Memory, Outcome, Phase, Row, Status, Table


def write_hot(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """An instance writes the next event and takes it from its own commit."""
    place = next((p for p, row in enumerate(table.rows) if row.status is Status.UNWRITTEN), None)
    is_hot = rules.world.has_hot_path or Bug.BORN_LEASED_IN_ORDERED_MODE in rules.bugs
    if place is None or not is_hot:
        return
    is_leased = Bug.UNLEASED_HOT_PATH not in rules.bugs
    born = with_row(table, place, Row(Status.NEW, owner=me if is_leased else None))
    words = f"{instance(me)} writes {name_of(place)}, born {'leased' if is_leased else 'free'}"
    yield Step(words, born, with_copy(memory, place, Copy(holds=is_leased)))
    if rules.world.loses_answers:
        yield Step(f"{words}, and does not see the commit", born, memory, is_fault=True)


def claim(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """Lease what is due and free, or expired; of a key its run, or a shorter one where somebody has locked a row."""
    if any(memory.arriving) or (rules.world.has_partition and not memory.believes):
        return
    for key in dict.fromkeys(rules.world.keys):
        if key is not None:
            run = run_of(rules, table, key)
            for end in range(1, len(run) + 1):
                yield from _claim_rows(rules, me, table, memory, run[:end])
    for place, row in enumerate(table.rows):
        if rules.world.keys[place] is None and row.is_claimable:
            yield from _claim_rows(rules, me, table, memory, [place])


def run_of(rules: Rules, table: Table, key: int) -> list[int]:
    """In order of position the unbroken prefix of unfinished rows that are due, and free or expired."""
    run: list[int] = []
    for place, row in enumerate(table.rows):
        if rules.world.keys[place] != key or row.status is Status.DONE:
            continue
        if row.is_claimable or (Bug.PARTITION_IS_A_LOCK in rules.bugs and row.is_unfinished and row.is_due):
            run.append(place)
        elif not _is_passed_over(rules, row):
            break
    return run[: rules.world.run]


def _is_passed_over(rules: Rules, row: Row) -> bool:
    """Whether the claim goes on behind a row that it cannot take."""
    if row.status is Status.DEAD:
        return not rules.world.blocks or Bug.DEAD_HEAD_IS_PASSED in rules.bugs
    if row.is_unfinished and not row.is_due:
        return Bug.HEAD_NOT_DUE_IS_PASSED in rules.bugs
    return row.is_unfinished and Bug.RUN_WITHOUT_ITS_HEAD in rules.bugs


def _claim_rows(rules: Rules, me: int, table: Table, memory: Memory, places: Sequence[int]) -> Iterator[Step]:
    overtaken = {place for place in places if _is_overtaken(rules, memory.copies[place])}
    raised = tuple(place for place in places if _raises_epoch(rules, me, table.rows[place]))
    lost = Lost(raised=raised, taken=tuple(places))
    memory = forget(memory, lost)
    nothing = memory
    for place in places:
        row = table.rows[place]
        is_takeover = rules.world.has_suspects and row.owner not in (None, me)
        fresh = Copy(
            is_suspect=is_takeover or row.abandoned > 0,
            is_alone=_is_alone(rules, row, is_takeover=is_takeover),
            is_overtaken=place in overtaken,
        )
        memory = with_arriving(memory, place, fresh)
        is_counted = is_takeover and Bug.WAITING_IS_COUNTED in rules.bugs
        leased = row._replace(owner=me, is_expired=False, abandoned=row.abandoned + is_counted)
        table = with_row(table, place, leased)
    words = f"{instance(me)} claims {', '.join(map(name_of, places))}"
    if rules.world.loses_answers:
        yield Step(f"{words}, and never hears of it", table, nothing, lost, is_fault=True)
    if not rules.world.has_slow_claims:
        memory = hand_over(rules, table, memory)
    yield Step(words, table, memory, lost)


def _is_overtaken(rules: Rules, held: Copy | None) -> bool:
    """Whether others have raised the epoch of a row since it was leased to this memory."""
    gives_back = rules.world.gives_back_overtaken and Bug.OLD_RUN_GOES_ON not in rules.bugs
    return gives_back and held is not None and not held.fits


def _is_alone(rules: Rules, row: Row, *, is_takeover: bool) -> bool:
    if is_takeover and rules.world.max_abandoned == 1:
        return Bug.LAST_COUNT_SIDE_BY_SIDE not in rules.bugs
    return row.abandoned > 0


def _raises_epoch(rules: Rules, me: int, row: Row) -> bool:
    if row.owner is None:
        return Bug.FREE_CLAIM_KEEPS_EPOCH not in rules.bugs
    return row.owner == me or Bug.TAKEOVER_KEEPS_EPOCH not in rules.bugs


def arrive(rules: Rules, me: int, table: Table, memory: Memory) -> Iterator[Step]:
    """A claim reaches memory."""
    if any(memory.arriving):
        yield Step(f"the claim reaches {instance(me)}'s memory", table, hand_over(rules, table, memory))


def hand_over(rules: Rules, table: Table, memory: Memory) -> Memory:
    """Admit what was claimed, one copy of each row. What follows a row that is being given back goes back too."""
    held_back: set[int | None] = set()
    for place, arriving in enumerate(memory.arriving):
        if arriving is None:
            continue
        memory = with_arriving(memory, place, None)
        held = memory.copies[place]
        key = rules.world.keys[place]
        fresh = arriving if held is not None else arriving._replace(is_overtaken=False)
        if held is not None:
            memory = _adopt(rules, memory, place, held, fresh)
        elif key in held_back:
            memory = with_copy(memory, place, released(fresh))
        elif table.rows[place].abandoned >= rules.world.max_abandoned:
            memory = with_copy(memory, place, reported(fresh, Outcome.DEAD))
        else:
            memory = with_copy(memory, place, fresh)
        if key is not None and _holds_back(rules, memory.copies[place]):
            held_back.add(key)
    return memory


def _holds_back(rules: Rules, copy: Copy | None) -> bool:
    """Whether what a claim brings behind this row must not be kept."""
    if copy is None or copy.phase is not Phase.REPORTED or copy.outcome is Outcome.DONE:
        return False
    return Bug.REST_KEPT_AFTER_REPORT not in rules.bugs


def _adopt(rules: Rules, memory: Memory, place: int, held: Copy, fresh: Copy) -> Memory:
    """A second claim of a held row replaces its lease. What it reports stands under the new one, with two exceptions:
    when others had the row in between; and when a try of it was not answered, so that it may be in the table already,
    and only a DONE row cannot be claimed again."""
    may_be_written = held.outcome is not Outcome.DONE and (held.is_unsure or held.sent is not None)
    if held.phase is Phase.REPORTED and (fresh.is_overtaken or may_be_written):
        memory, held = _doubted(rules, memory, place, held)
    if fresh.is_overtaken and held.phase is Phase.WAITING:
        memory, held = let_go(rules, memory, place), released(held)
    elif fresh.is_overtaken and held.phase is not Phase.REPORTED:
        held = held._replace(is_overtaken=True, is_old=False)
    is_late = fresh.is_late or held.phase is Phase.REPORTED or held.is_overtaken
    is_suspect = held.is_suspect or (fresh.is_overtaken and fresh.is_suspect)
    leased = held._replace(fits=fresh.fits, holds=fresh.holds, is_late=is_late, is_suspect=is_suspect)
    return with_copy(memory, place, leased)


def _doubted(rules: Rules, memory: Memory, place: int, held: Copy) -> tuple[Memory, Copy]:
    """The new lease is given back unused. A settle that is still under way is a stray from now on."""
    if Bug.OUTCOME_WRITTEN_AGAIN in rules.bugs or (held.sent and Bug.ANSWER_DROPS_NEWER_LEASE in rules.bugs):
        return memory, held
    if held.sent is not None and held.sent.was_accepted is None:
        memory = with_stray(memory, place, held.sent)
    return memory, released(held)._replace(sent=None, is_unsure=False, was_written=False)
