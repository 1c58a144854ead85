"""The end of a transaction: what is called then, every one of them whatever one of them raises, and how its errors are
told."""

from __future__ import annotations

from collections.abc import Iterable

from aftercommit.errors import TransactionEnded
from aftercommit.ports import Callback, Transactional


def checked(callback: Callback) -> Callback:
    if not callable(callback):
        raise TypeError(f"a callback is called without arguments; {callback!r} cannot be called")
    return callback


def run_all(callbacks: Iterable[Callback], *, beside: BaseException | None = None) -> None:
    """Run every callback; the first error is raised at the end, with notes of the others.

    Beside an error that is on its way to the caller they are all notes of that one. What stops a program stops it.
    """
    errors: list[BaseException] = []
    for callback in callbacks:
        try:
            callback()
        except BaseException as error:
            errors.append(error)
    if not errors:
        return
    loudest = next((each for each in errors if not isinstance(each, Exception)), beside or errors[0])
    for each in errors:
        if each is not loudest:
            loudest.add_note(f"another callback failed too: {each!r}")
    if loudest is not beside:
        raise loudest


def our_word_for(error: BaseException, store: Transactional) -> BaseException:
    """What happens to the database as a whole is said in our words; all else is between the user and the driver."""
    outage = store.outage(error) if isinstance(error, Exception) else None
    if outage is None:
        return error
    outage.__cause__ = error
    return outage


def ended_elsewhere() -> TransactionEnded:
    return TransactionEnded(
        "the transaction was ended on the connection itself, before the block did it",
        fix="use tx.commit() and tx.rollback(), and no statement that rolls back by itself",
    )
