"""Rules that were left out on purpose. The explorer must find what each of them breaks."""

from __future__ import annotations

from enum import StrEnum


class Bug(StrEnum):
    """One changed rule of the protocol."""

    # Fences.
    UNFENCED_SETTLE = "a settle changes the row, whoever holds it"
    FENCE_WITHOUT_OWNER = "the fence asks for the epoch alone"
    FENCE_WITHOUT_EPOCH = "the fence asks for the owner alone"
    RELEASE_WITHOUT_FENCE = "a release frees the row, whoever holds it"
    RENEWAL_MATCHES_AFTER_SETTLE = "a renewal asks for the epoch alone, which a settle leaves as it is"
    SETTLE_KEEPS_OWNER = "a settle does not clear locked_by"
    TAKEOVER_KEEPS_EPOCH = "a takeover of another's expired lease does not raise the epoch"
    FREE_CLAIM_KEEPS_EPOCH = "a claim of a free row does not raise the epoch"
    REPLAY_KEEPS_EPOCH = "a replay does not raise the epoch"
    OUTCOME_WRITTEN_AGAIN = "an outcome whose try was not answered is written again under a new lease"
    OLD_RUN_GOES_ON = "what began before others had the row is settled under a new lease"
    ANSWER_DROPS_NEWER_LEASE = "the answer to a settle drops a row that was claimed again meanwhile"

    # One holder.
    UNLEASED_HOT_PATH = "a row on the hot path is born free"
    DEADLINE_IGNORED = "a row is started although its local deadline has passed"
    DEADLINE_AFTER_EXPIRY = "the local deadline is no earlier than the database's"
    NO_EXPIRY = "the lease of a process that is gone never expires"

    # Order.
    BORN_LEASED_IN_ORDERED_MODE = "a row with a key is born leased and goes to the hot lane"
    RUN_WITHOUT_ITS_HEAD = "a claim skips a row that another holds and takes what follows"
    HEAD_NOT_DUE_IS_PASSED = "a claim skips a row that is not due and takes what follows"
    DEAD_HEAD_IS_PASSED = "a claim skips a dead row although it blocks its key"
    REST_KEPT_AFTER_FAILURE = "what follows a failed row stays in memory"
    REST_KEPT_AFTER_LOSS = "a row whose lease is lost is skipped and what follows it stays in memory"
    REST_KEPT_AFTER_REPORT = "what a claim brings behind a row that memory is just giving back is kept"
    TWO_AT_ONCE = "an instance delivers the rows of a key side by side"

    # The first of its key.
    NOBODY_LOOKS = "a row is born leased whatever is unfinished of its key"
    LOOK_WITHOUT_LOCK = "writers of a key look without waiting for each other"
    LOOK_AND_LOCK_AT_ONCE = "the statement that locks the key also looks, at a snapshot older than its lock"
    LOCK_ENDS_EARLY = "the lock on a key ends with the INSERT and not with its transaction"
    LOOK_PASSES_LEASED = "the look for unfinished rows passes over those that somebody delivers"
    LOOK_PASSES_DEAD = "the look passes over a dead row, which blocks its key and may be replayed"

    # Fleet.
    PARTITION_IS_A_LOCK = "who owns a partition claims its rows whatever leases they have"
    GIVE_BACK_DROPS_RUNNING = "giving back a partition also releases the row that is being delivered"
    OWNER_IS_NOT_ASKED = "a row is started without the question whether its partition is still owned"
    NO_PARTITION_EXPIRY = "the partition of an instance that is gone is never taken"

    # Killers.
    DEADLINE_BEFORE_THE_MARK_ONLY = "the deadline of a suspect is looked at before its mark and not again"
    OWNER_BEFORE_THE_MARK_ONLY = "the partition of a suspect is asked for before its mark and not again"
    MARK_TAKES_ALL_COUNTS = "the mark of a suspect that is not started is taken back with all that was counted before"
    GIVEN_BACK_IS_INNOCENT = "a suspect that is given back unstarted is suspected no more"
    MARK_IS_KEPT = "a suspect that was marked and is not started goes back with its mark"
    KILLERS_NOT_COUNTED = "the delivery of a suspect is not counted"
    WAITING_IS_COUNTED = "every takeover is counted, also of rows that only waited"
    SUSPECTS_SIDE_BY_SIDE = "a process runs several suspects at once that were under way when another ended"
    LAST_COUNT_SIDE_BY_SIDE = "suspects run side by side although one count makes them DEAD"
    LIVING_IS_BLAMED = "a suspect that has lived for long is still counted when the next one kills the process"
    HUNG_SUSPECT_KEEPS_ITS_PLACE = "a suspect that never ends keeps all others waiting"
    SUSPECT_LEAVES_EARLY = "the next suspect begins before the outcome of the last one is written"
