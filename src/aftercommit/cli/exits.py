"""How a command ends: its exit code, and what it says when it could not do what was asked."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import click

from aftercommit.errors import OutboxError, StoreBusy, StoreUnavailable


class Exit(IntEnum):
    """The exit codes of all commands."""

    OK = 0
    #: The command did its work and found something wrong.
    PROBLEM = 1
    #: Wrong arguments, or a change that nobody confirmed.
    USAGE = 2
    #: A module, an option or the schema is not as it has to be.
    NO_START = 3
    #: The database cannot be reached.
    UNREACHABLE = 4
    #: Some of it is done, and some could not be.
    PARTLY = 5
    INTERRUPTED = 130


#: The database, not the program: trying again later may help.
_AWAY: Final = (StoreUnavailable, StoreBusy)


class Refused(click.UsageError):
    """A change that nobody confirmed."""


def exit_of(error: OutboxError) -> Exit:
    return Exit.UNREACHABLE if isinstance(error, _AWAY) else Exit.NO_START
