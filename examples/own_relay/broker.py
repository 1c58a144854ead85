"""A broker for the example: it keeps what it is sent, in one file, and says so.

A request is a line of JSON: `{"to": "orders", "id": "…", "body": "…"}`, the body in base64. The answer is a line: `ok`
when the message is in the file, `no …` when it is not taken.
"""

from __future__ import annotations

import json
import os
import socketserver
import sys
from pathlib import Path

#: Characters of a line.
LONGEST = 1_000_000


class Handler(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        while line := self.rfile.readline(LONGEST + 1):
            if not line.endswith(b"\n"):
                return
            self.wfile.write(self.answer(json.loads(line), line))

    def answer(self, message: dict[str, str], line: bytes) -> bytes:
        if message["to"].startswith("nowhere"):
            return b"no nobody reads " + message["to"].encode() + b"\n"
        if len(message["body"]) > LONGEST // 2:
            return b"no it is too large\n"
        with self.server.file.open("ab") as file:  # type: ignore[attr-defined]
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        return b"ok\n"


class Broker(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, file: Path) -> None:
        self.file = file
        super().__init__(("127.0.0.1", port), Handler)


if __name__ == "__main__":
    Broker(int(sys.argv[1]), Path(sys.argv[2])).serve_forever()
