"""Addresses as they are written on the command line: `127.0.0.1:9100`, `[::1]:9100`, `:9100`."""

from __future__ import annotations

from typing import NamedTuple

import click


class Address(NamedTuple):
    """Where something listens."""

    host: str
    port: int

    def next(self, number: int) -> Address:
        """As many ports further; any port that is free stays so."""
        return self._replace(port=self.port + number) if self.port else self

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def address(text: str) -> Address:
    """For an option `HOST:PORT`; without a host it is this machine alone."""
    host, _, port = text.rpartition(":")
    is_number = port.isdecimal() and port.isascii() and int(port) <= 65535
    if not is_number or (":" in host and not host.startswith("[")):
        raise click.BadParameter(f"{text!r} is no address; write HOST:PORT, such as 127.0.0.1:9100")
    return Address(host.strip("[]") or "127.0.0.1", int(port))
