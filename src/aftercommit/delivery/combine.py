"""One row that serves several handlers: which of them are still to run, and what follows from all of them together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from aftercommit.events.outcome import DONE, GAVE_UP, Dead, Defer, Done, Outcome, Release, Retry
from aftercommit.events.redact import storable

_AT_ONCE: Final = timedelta(0)


def still_to_run(ids: Sequence[str], done: Sequence[str]) -> list[str]:
    """The handlers without a verdict."""
    past = {name.removeprefix(GAVE_UP) for name in done}
    return [each for each in ids if each not in past]


def combine(outcomes: Mapping[str, Outcome], done: Sequence[str]) -> Outcome:
    """One outcome for the row; `done` is what it knew before. The row goes on while any of its handlers does."""
    succeeded = tuple(name for name in done if not name.startswith(GAVE_UP))
    succeeded += tuple(name for name, outcome in outcomes.items() if isinstance(outcome, Done))
    gave_up = tuple(name for name in done if name.startswith(GAVE_UP))
    gave_up += tuple(GAVE_UP + name for name, outcome in outcomes.items() if isinstance(outcome, Dead))
    errors = {name: each.error for name, each in outcomes.items() if isinstance(each, Retry | Dead)}
    delays = [each.delay for each in outcomes.values() if isinstance(each, Retry | Defer)]
    is_interrupted = any(isinstance(each, Release) for each in outcomes.values())
    if not delays and not is_interrupted:
        return _ended(outcomes, succeeded, gave_up, errors)
    if errors:
        # Nobody is called before the time that was set for it, so the longest wait counts.
        return Retry(max(delays, default=_AT_ONCE), _text(errors), succeeded + gave_up)
    if is_interrupted:
        return Release(was_started=True, done_handlers=succeeded + gave_up)
    return Defer(max(delays), succeeded + gave_up)


def _ended(
    outcomes: Mapping[str, Outcome], succeeded: tuple[str, ...], gave_up: tuple[str, ...], errors: Mapping[str, str]
) -> Outcome:
    if not gave_up:
        return DONE
    earlier = {name.removeprefix(GAVE_UP): "gave up at an earlier attempt" for name in gave_up}
    is_counted = any(each.counted for each in outcomes.values() if isinstance(each, Dead))
    return Dead(_text({**earlier, **errors}), is_counted, succeeded)


def _text(errors: Mapping[str, str]) -> str:
    return storable("; ".join(f"{name}: {error}" for name, error in errors.items()))
