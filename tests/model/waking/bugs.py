"""Rules of waking that were left out on purpose. The explorer must find who is never looked at because of each."""

from __future__ import annotations

from enum import StrEnum


class Slip(StrEnum):
    """One changed rule of the agenda, or of those who add to it."""

    # The poller.
    FLAG_CLEARED_AFTER_THE_LOOK = "the poller takes back its wake-up when the look is over"
    ROUND_FLAG_CLEARED_AFTER_THE_ROUND = "the call for a round is taken back when the round is over"
    ROUND_JOINS_THE_ONE_UNDER_WAY = "a call for a round while one is under way begins no other"
    ROUND_PASSES_WHAT_IS_HELD = "a round does not call a key whose head is in this process's own memory"
    HELD_IS_ASKED_BEFORE_PARKING = "a key is parked after the question whether it is held"
    HELD_KEY_IS_DROPPED = "a key that is held is forgotten instead of parked"
    FAILED_CLAIM_FORGETS_ITS_KEYS = "the keys of a claim that failed are not put back"
    ADD_WHILE_TAKEN_IS_LOST = "a key that is called while it is being claimed is not noted again"
    FULL_RUN_IS_NOT_CALLED_AGAIN = "nobody looks again at a key whose run was as long as it could be"
    LOOK_ENDS_WITHOUT_THE_REST = "a look that left keys or a part of the round behind does not go on"

    # Room.
    ROOM_IS_NOT_TOLD = "a worker that makes room tells nobody"
    ROOM_IS_NOT_LOOKED_AT_AGAIN = "the poller asks for room without a second look whether there is some now"
    LEAVING_MAKES_NO_ROOM = "rows that leave the lane unstarted make room, and nobody is told"

    # The settler.
    FREED_BEFORE_LET_GO = "the agenda hears that a key is free before its row is let go"
    FREED_WHEN_REPORTED = "the agenda hears that a key is free before the store has answered"
    FREED_KEY_IS_NOT_CALLED = "a parked key that becomes free is forgotten"
    RELEASE_IS_NOT_TOLD = "a release is not told"
    RETRY_IS_NOT_TOLD = "the time of a retry is not told"
    RETRY_IS_LOOKED_AT_EARLY = "a retry is looked at before the database takes it for due"

    # Writers and owners.
    TOLD_BEFORE_THE_COMMIT = "a writer tells of its rows before it commits"
    EXPECTED_ONCE = "a commit that nobody sees is looked for once"
    EVERY_LOOK_COUNTS_AS_EXPECTED = "looks for other things use up the patience for a commit that nobody sees"
    GAIN_IS_NOT_TOLD = "nobody looks at a partition that was gained"
    OWNED_IS_READ_BEFORE_THE_FLAG = "a round goes over what was owned before the call for it was taken"
    NO_ROUNDS = "the interval begins no rounds"
