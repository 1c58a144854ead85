"""The command `aftercommit`: what operators and newcomers do with an outbox, without writing a program for it.

`main` alone is here, so that a program without click says what is missing. A module for each command, or for a small
family of them, is loaded when one of them is called: `program.py` has the table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    try:
        import click  # noqa: F401, PLC0415  (it is an extra)
    except ImportError:
        sys.exit("The command line needs click and rich: pip install 'aftercommit[cli]'")
    from aftercommit.cli.program import run_program  # noqa: PLC0415

    sys.exit(run_program(arguments))
