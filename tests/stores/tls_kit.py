"""A server that speaks PostgreSQL's or MySQL's protocol up to the login, with TLS or without, and notes how the login
came: that is what a client that was to encrypt, or to look at a certificate first, must not say to just anybody."""

from __future__ import annotations

import socket
import ssl
import struct
import subprocess
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

#: Of MySQL: the protocol of 4.1, with a database, secure, with plugins of authentication; and TLS.
_CAPABILITIES = 0x00000200 | 0x00000008 | 0x00008000 | 0x00080000
_SSL = 0x00000800

_SSL_REQUEST, _GSS_REQUEST = 80877103, 80877104


class Certificate:
    """Of `localhost`, signed by itself, so that it is its own authority."""

    def __init__(self, folder: Path) -> None:
        self.path, self.key = folder / "server.pem", folder / "server.key"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
                *("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
                *("-keyout", self.key, "-out", self.path),
            ],
            check=True,
            capture_output=True,
        )

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.path, self.key)
        return context


class LoginServer:
    """`heard` has "encrypted" or "plain" for each login. Without a certificate it claims to know no TLS."""

    def __init__(self, protocol: str, certificate: Certificate | None) -> None:
        self._talk = {"postgresql": self._postgres, "mysql": self._mysql}[protocol]
        self._context = None if certificate is None else certificate.context()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.heard: list[str] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def __enter__(self) -> LoginServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(5)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                client.settimeout(5)
                with suppress(OSError), ExitStack() as self._open:
                    self._talk(self._open.enter_context(client))

    def _encrypted(self, client: socket.socket) -> ssl.SSLSocket:
        if self._context is None:
            raise ConnectionAbortedError("it was told that there is none")
        return self._open.enter_context(self._context.wrap_socket(client, server_side=True))

    # ------------------------------------------------------------ PostgreSQL

    def _postgres(self, client: socket.socket) -> None:
        how = "plain"
        while True:
            size, code = struct.unpack("!II", _read(client, 8))
            _read(client, size - 8)
            if code == _SSL_REQUEST and self._context is not None:
                client.sendall(b"S")
                client, how = self._encrypted(client), "encrypted"
            elif code in (_SSL_REQUEST, _GSS_REQUEST):
                client.sendall(b"N")
            else:
                break
        self.heard.append(how)
        fields = b"SFATAL\0VFATAL\0C28000\0Mnobody may\0\0"
        client.sendall(b"E" + struct.pack("!I", len(fields) + 4) + fields)

    # ------------------------------------------------------------ MySQL

    def _mysql(self, client: socket.socket) -> None:
        capabilities = _CAPABILITIES | (_SSL if self._context is not None else 0)
        low, high = capabilities & 0xFFFF, capabilities >> 16
        greeting = b"\x0a8.0.36\0" + struct.pack("<I", 7) + b"a" * 8 + b"\0"
        greeting += struct.pack("<HBHHB", low, 45, 2, high, 21) + b"\0" * 10 + b"a" * 12 + b"\0"
        client.sendall(_packet(0, greeting + b"mysql_native_password\0"))
        number, said = _packet_of(client)
        how = "plain"
        if len(said) == 32:  # it begins TLS, offered or not
            client, how = self._encrypted(client), "encrypted"
            number, said = _packet_of(client)
        self.heard.append(how)
        client.sendall(_packet(number + 1, b"\xff" + struct.pack("<H", 1049) + b"#42000no such database"))


def _read(client: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        more = client.recv(size - len(read))
        if not more:
            raise ConnectionResetError("it left")
        read += more
    return read


def _packet(number: int, data: bytes) -> bytes:
    return struct.pack("<I", len(data))[:3] + bytes([number]) + data


def _packet_of(client: socket.socket) -> tuple[int, bytes]:
    head = _read(client, 4)
    return head[3], _read(client, int.from_bytes(head[:3], "little"))
