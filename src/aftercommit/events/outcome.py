"""How a delivery ends: what a handler may return, and what is written to the row."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import force_setattr

from aftercommit.errors import InvalidOption, OutboxError
from aftercommit.events.durations import Duration, duration

#: Before the id of a handler that gave up while others of its row go on.
GAVE_UP: Final = "!"


class Done(msgspec.Struct, frozen=True):
    """The event was handled. Handlers may return it; any other value means the same."""


class RetryAfter(msgspec.Struct, frozen=True):
    """Return it from a handler to be called again after `delay`, without counting an attempt."""

    delay: timedelta

    if TYPE_CHECKING:  # what it is given is more than what it keeps

        def __init__(self, delay: Duration) -> None: ...

    def __post_init__(self) -> None:
        force_setattr(self, "delay", duration(self.delay, name="delay"))


DispatchResult = Done | RetryAfter


class RetryAfterError(OutboxError, code="AC060"):
    """Raise it in a handler to fail this attempt and set the delay of the next one. It counts as an attempt."""

    def __init__(
        self, delay: Duration, message: str = "the handler asked for a retry", cause: BaseException | None = None
    ) -> None:
        super().__init__(message)
        self.delay = duration(delay, name="delay")
        if cause is not None:
            self.__cause__ = cause

    def __reduce__(self) -> tuple[object, ...]:
        # An exception is copied and pickled by calling its class with `args`, which has no delay.
        return type(self), (self.delay, self.message), self.__dict__


class Discard(OutboxError, code="AC061"):
    """Raise it in a handler to end the event as DONE without handling it. The reason is logged."""


class DeadLetter(OutboxError, code="AC062"):
    """Raise it in a handler to end the event as DEAD at once: no retry and no fallback. The reason is kept."""


class Unavailable(OutboxError, code="AC063"):
    """Raise it in a handler when what it talks to is away: the event waits and no attempt is spent.

    Until `retry_in` is over (by default 1 s, doubled each time up to a minute) no event is tried against the same
    destination; then one is, and when it gets through all the others follow.
    """

    def __init__(self, destination: str, retry_in: Duration | None = None) -> None:
        if not isinstance(destination, str):
            raise InvalidOption(
                f"the destination of Unavailable is a {type(destination).__name__}", fix="pass its name, as a str"
            )
        super().__init__(f"{destination} is not available")
        self.destination = destination
        self.retry_in = None if retry_in is None else duration(retry_in, name="retry_in")

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.destination, self.retry_in), self.__dict__


class WrongBatchResult(OutboxError, TypeError, code="AC064"):
    """What a handler of batches says of its events makes no sense: it counts as if the handler had raised this."""


class BatchResult(msgspec.Struct, frozen=True):
    """Return it from a handler of batches that has something to say of each event, in the order of the list.

    None or `Done()`: it was handled; `RetryAfter(delay)`: it comes again, not counted; an exception: as if a handler of
    this event alone had raised it.

    >>> BatchResult([None, RetryAfter("5s"), ValueError("no such order")]).results[2]
    ValueError('no such order')
    """

    results: tuple[Done | RetryAfter | BaseException | None, ...]

    if TYPE_CHECKING:

        def __init__(self, results: Iterable[Done | RetryAfter | BaseException | None]) -> None: ...

    def __post_init__(self) -> None:
        try:
            entries = tuple(self.results)
        except TypeError as error:
            raise WrongBatchResult(
                f"BatchResult got {self.results!r}", fix="pass a list with an entry for each event"
            ) from error
        for index, entry in enumerate(entries):
            if entry is not None and not isinstance(entry, Done | RetryAfter | BaseException):
                raise WrongBatchResult(
                    f"entry {index} of BatchResult is {entry!r}",
                    fix="None or Done() for an event that was handled, RetryAfter(delay), or an exception, made: "
                    'ValueError("…")',
                )
        force_setattr(self, "results", entries)


#: There is one way to be done for the table. Who counts tells three apart: it was handled, the handler discarded it, or
#: the fallback took it over.
DONE = Done()
DISCARDED: Final = Done()
FELL_BACK: Final = Done()
#: The same verdict, which a transactional handler's own transaction has written: nobody has to write it again.
WRITTEN: Final = Done()


class FailureNote(msgspec.Struct, frozen=True):
    """What is kept of one failure beside its row, as every store accepts it: no secrets, of limited length."""

    #: 0 when nobody was called.
    attempt: int
    #: Whose failure it was; '' when nobody was called.
    handler: str
    error_class: str
    message: str
    traceback: str | None = None


class _Noted(msgspec.Struct, frozen=True, eq=False):
    """Two are equal whatever was noted of their failures."""

    def __eq__(self, other: object) -> bool:
        return self._verdict() == other._verdict() if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._verdict())

    def _verdict(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name != "failures")


class Retry(_Noted, frozen=True, eq=False):
    """The attempt failed and counts; the event is due again after `delay`."""

    delay: timedelta
    error: str
    #: Handlers of this row that have succeeded so far, when one row serves several; empty: as it was.
    done_handlers: tuple[str, ...] = ()
    #: How often it may fail: a row that says it has done so by now, this time included, is DEAD instead.
    limit: int | None = None
    #: What is written down of it; one for each handler that failed.
    failures: tuple[FailureNote, ...] = ()


class Defer(msgspec.Struct, frozen=True):
    """Not now: due again after `delay`, nothing counted."""

    delay: timedelta
    done_handlers: tuple[str, ...] = ()


class Dead(_Noted, frozen=True, eq=False):
    """No more attempts. `counted` tells whether a handler was called for this verdict."""

    error: str
    counted: bool = True
    done_handlers: tuple[str, ...] = ()
    failures: tuple[FailureNote, ...] = ()


class Release(msgspec.Struct, frozen=True):
    """Give the lease back and change nothing else: the event was not started, or was interrupted by close().

    An interrupted delivery has reported: it did not kill its process. A suspect that was not started has not, and stays
    one for whoever claims it next.
    """

    was_started: bool = False
    done_handlers: tuple[str, ...] = ()
    is_suspect: bool = False
    #: A suspect was counted as begun and did not begin: this one count is taken back.
    was_marked: bool = False


Outcome = Done | Retry | Defer | Dead | Release

RELEASE = Release()
#: A transactional handler's commit got no answer. If it was one, the fence refuses this, and that is no lost lease.
UNANSWERED: Final = Release(was_started=True)


class Ok(msgspec.Struct, frozen=True):
    """A user's function returned."""

    value: object = None


#: What nearly all functions return.
NOTHING: Final = Ok()
#: A transactional handler returned, and its transaction, in which its event is marked as done, is committed.
COMMITTED: Final = Ok()


class Raised(msgspec.Struct, frozen=True):
    """A user's function raised; `interrupted` when close() cancelled it."""

    error: BaseException
    interrupted: bool = False


Result = Ok | Raised


def answered_by(result: Result, count: int) -> Result:
    """What a call with so many events gave. An answer for another number of events counts as raised."""
    answer = None if isinstance(result, Raised) else result.value
    if not isinstance(answer, BatchResult) or len(answer.results) == count:
        return result
    error = WrongBatchResult(
        f"BatchResult has {len(answer.results)} entries, and the handler got {count} events",
        fix="give one for each event, in order: None for those that were handled",
    )
    return Raised(error)


def results_of(result: Result, count: int) -> list[Result]:
    """What that says of each of them."""
    if isinstance(result, Raised) or not isinstance(result.value, BatchResult):
        return [result] * count
    return [Raised(each) if isinstance(each, BaseException) else Ok(each) for each in result.value.results]
