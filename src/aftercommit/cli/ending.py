"""How a call ends: whatever happens is an exit code and one clean message, with a traceback only on request."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from io import StringIO

import click

from aftercommit.cli.command import Call
from aftercommit.cli.exits import Exit, exit_of
from aftercommit.errors import OutboxError
from aftercommit.events.redact import error_text, traceback_text


def ended(call: Call, work: Callable[[], int | None]) -> int:
    """The exit code of that work, whether it returns one, nothing, or raises."""
    try:
        code = work()
        sys.stdout.flush()
    except click.ClickException as error:
        said = StringIO()
        error.show(said)
        call.output.say(said.getvalue().rstrip())  # it may quote an argument with a password in it
        return Exit.USAGE
    except OutboxError as error:
        return _told(call, error, str(error), exit_of(error))
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except OSError as error:
        if error.errno != errno.EPIPE:
            return _told(call, error, error_text(error), Exit.PROBLEM)
        # Whoever read our output has seen enough. What is still to be written goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.OK
    except Exception as error:  # a mistake of ours, or of a program that was loaded
        return _told(call, error, f"{error_text(error)}\n  Fix: -vv shows where it happened", Exit.PROBLEM)
    return int(code or Exit.OK)


def _told(call: Call, error: BaseException, text: str, code: Exit) -> Exit:
    if call.verbosity > 1:
        call.output.say(traceback_text(error))
    call.output.complain(f"aftercommit: {text}")
    return code
