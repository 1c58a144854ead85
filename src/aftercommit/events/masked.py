"""An exception as it may leave the process: itself, unless what it says holds a secret."""

from __future__ import annotations

from collections.abc import Iterator

from aftercommit.events.redact import MAX_ERROR_LENGTH, redact, text_of


def masked(error: BaseException) -> BaseException:
    """The error itself when neither it nor anything behind it (causes, members of groups, notes) names a secret.

    Else a stand-in for all of them: classes of the same names, the same frames and links, the texts masked. Whoever
    prints or reports it sees the same, and has nothing in hand that knows the secret but the frames' own variables.
    """
    errors = list(_all(error))
    if all(map(_is_clean, errors)):
        return error
    made: dict[int, BaseException] = {}
    for each in errors:
        _stand_in(each, made)
    for each in errors:
        _link(each, made)
    return made[id(error)]


def _all(error: BaseException) -> Iterator[BaseException]:
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        each = waiting.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            yield each
            waiting += (each.__cause__, each.__context__, *(_members(each)))


def _members(error: BaseException) -> tuple[BaseException, ...]:
    return error.exceptions if isinstance(error, BaseExceptionGroup) else ()


def _is_clean(error: BaseException) -> bool:
    """A text that is too long to be looked through is taken for one that has a secret."""
    try:
        texts = [str(error), *(note for note in getattr(error, "__notes__", ()) if isinstance(note, str))]
        return all(len(text) <= MAX_ERROR_LENGTH and redact(text) == text for text in texts)
    except BaseException:  # a text may raise whatever it likes
        return False


def _stand_in(error: BaseException, made: dict[int, BaseException]) -> BaseException:
    if id(error) not in made:
        made[id(error)] = _made(error, made)
    return made[id(error)]


def _made(error: BaseException, made: dict[int, BaseException]) -> BaseException:
    base: type[BaseException] = Exception if isinstance(error, Exception) else BaseException
    if isinstance(error, BaseExceptionGroup):
        base = ExceptionGroup if isinstance(error, ExceptionGroup) else BaseExceptionGroup
    kind = type(error)
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__}
    alike: type[BaseException] = type(kind.__name__, (base,), names)
    if isinstance(error, BaseExceptionGroup):
        return alike(text_of(error.message), [_stand_in(each, made) for each in error.exceptions])
    return alike(text_of(error))


def _link(error: BaseException, made: dict[int, BaseException]) -> None:
    mine = made[id(error)]
    mine.__cause__ = None if error.__cause__ is None else made[id(error.__cause__)]
    mine.__context__ = None if error.__context__ is None else made[id(error.__context__)]
    mine.__suppress_context__ = error.__suppress_context__
    mine.__traceback__ = error.__traceback__
    for note in getattr(error, "__notes__", ()):
        mine.add_note(text_of(note))
