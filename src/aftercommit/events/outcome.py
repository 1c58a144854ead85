"""How a delivery ends: what a handler may return, and what is written to the row."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from aftercommit.errors import InvalidOption, OutboxError
from aftercommit.events.durations import Duration, duration

#: Before the id of a handler that gave up while others of its row go on.
GAVE_UP: Final = "!"


@dataclass(frozen=True, slots=True)
class Done:
    """The event was handled. Handlers may return it; any other value means the same."""


@dataclass(frozen=True, slots=True, init=False)
class RetryAfter:
    """Return it from a handler to be called again after `delay`, without counting an attempt."""

    delay: timedelta

    def __init__(self, delay: Duration) -> None:
        object.__setattr__(self, "delay", duration(delay, name="delay"))


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


#: There is one way to be done for the table. Who counts tells three apart: it was handled, the handler discarded it, or
#: the fallback took it over.
DONE = Done()
DISCARDED: Final = Done()
FELL_BACK: Final = Done()
#: The same verdict, which a transactional handler's own transaction has written: nobody has to write it again.
WRITTEN: Final = Done()


@dataclass(frozen=True, slots=True)
class FailureNote:
    """What is kept of one failure beside its row, as every store accepts it: no secrets, of limited length."""

    #: 0 when nobody was called.
    attempt: int
    #: Whose failure it was; '' when nobody was called.
    handler: str
    error_class: str
    message: str
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The attempt failed and counts; the event is due again after `delay`."""

    delay: timedelta
    error: str
    #: Handlers of this row that have succeeded so far, when one row serves several; empty: as it was.
    done_handlers: tuple[str, ...] = ()
    #: How often it may fail: a row that says it has done so by now, this time included, is DEAD instead.
    limit: int | None = None
    #: What is written down of it; one for each handler that failed.
    failures: tuple[FailureNote, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Defer:
    """Not now: due again after `delay`, nothing counted."""

    delay: timedelta
    done_handlers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Dead:
    """No more attempts. `counted` tells whether a handler was called for this verdict."""

    error: str
    counted: bool = True
    done_handlers: tuple[str, ...] = ()
    failures: tuple[FailureNote, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Release:
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


@dataclass(frozen=True, slots=True)
class Ok:
    """A user's function returned."""

    value: object = None


#: What nearly all functions return.
NOTHING: Final = Ok()
#: A transactional handler returned, and its transaction, in which its event is marked as done, is committed.
COMMITTED: Final = Ok()


@dataclass(frozen=True, slots=True)
class Raised:
    """A user's function raised; `interrupted` when close() cancelled it."""

    error: BaseException
    interrupted: bool = field(default=False)


Result = Ok | Raised
