"""A broker or service that is away, and why."""

from __future__ import annotations

from datetime import timedelta

from aftercommit.events.outcome import Unavailable


def away(where: str, text: str, retry_in: timedelta | None = None) -> Unavailable:
    """No attempt is spent. The reason goes to the log with the events that wait."""
    error = Unavailable(where, retry_in)
    error.__cause__ = ConnectionError(text)
    return error
