"""The command `aftercommit`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        import click  # noqa: F401, PLC0415
    except ImportError:
        sys.exit("The command line needs click and rich: pip install 'aftercommit[cli]'")
