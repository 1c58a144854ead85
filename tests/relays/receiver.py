"""A receiver of webhooks on a port of its own, as obliging or as hostile as a test wants it."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    path: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """`answer` gets the request and the handler, and writes what it likes; by default 204."""

    def __init__(
        self, answer: Callable[[Request, Any], None] | None = None, context: ssl.SSLContext | None = None
    ) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 10

            def setup(self) -> None:
                receiver.connections += 1
                super().setup()

            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                headers = {name.lower(): value for name, value in self.headers.items()}
                request = Request(self.path, headers, self.rfile.read(length))
                receiver.requests.append(request)
                if answer is None:
                    status(204)(request, self)
                else:
                    answer(request, self)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 200

            def handle_error(self, *_: object) -> None:
                """Clients of these tests go when they please."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._server.server_address[1]
        self.url = f"{'http' if context is None else 'https'}://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *_: object) -> None:
        """It may be asked for more than once."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)


def status(code: int, body: bytes = b"", **headers: str) -> Callable[[Request, Any], None]:
    """An answer as it should be."""

    def answer(_: Request, handler: Any) -> None:
        handler.send_response(code)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        if code != 204:
            handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    return answer
