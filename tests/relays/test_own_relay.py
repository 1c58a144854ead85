"""The relay of the guide passes the contract, and is written as the guide says."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from aftercommit.relays import Relay
from aftercommit.relays.testing import RelayContract, Stored
from examples.own_relay.relay import OwnRelay
from tests.servers import free_port

ROOT = Path(__file__).resolve().parent.parent.parent


class TestOwnRelay(RelayContract):
    @pytest.fixture(autouse=True)
    def broker(self, tmp_path: Path) -> Iterator[None]:
        self.file, self.port = tmp_path / "messages", free_port()
        self.start()
        yield
        self.stop()

    def start(self) -> None:
        command = [sys.executable, "-m", "examples.own_relay.broker", str(self.port), str(self.file)]
        self.process = subprocess.Popen(command, cwd=ROOT)
        watch = threading.Event()
        while True:
            try:
                socket.create_connection(self.address).close()
            except OSError:
                assert self.process.poll() is None
                watch.wait(0.02)
            else:
                return

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def make_relay(self, host: str, port: int) -> Relay:
        return OwnRelay(host, port, timeout=2)

    def make_place(self) -> Any:
        return f"topic-{uuid4().hex}"

    def stored(self, place: Any) -> list[Stored]:
        lines = self.file.read_bytes().splitlines() if self.file.exists() else []
        found = [each for each in map(json.loads, lines) if each["to"] == place]
        return [
            Stored(each["id"], b64decode(each["body"]), each["content_type"], each["attributes"], each["headers"])
            for each in found
        ]

    def make_nowhere(self) -> Any:
        return "nowhere"

    def too_large(self) -> bytes:
        return b"x" * 500_000

    def restart(self) -> None:
        self.stop()
        self.start()
