"""MySQL and Valkey from a distribution's packages, unpacked into a cache of this user: Debian's stable releases have
only MariaDB and Redis.

Nothing is installed and nobody needs to be root: a server runs with the loader and the libraries that were unpacked
beside it. Where packages come from is what this machine's apt is set up with.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

#: Far longer than sixty megabytes take.
PATIENCE = 300.0

#: What every server needs of all that is unpacked.
_KEPT = ("lib", "lib64", "usr/lib", "usr/lib64")


class NotUnpacked(Exception):
    """And why."""


@dataclass(frozen=True)
class Package:
    """A server: its name here, the beginning of its package's, where its program is, and what else it needs."""

    name: str
    prefix: str
    program: str
    needs: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Where it is, or will be."""
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return Path(cache) / "aftercommit-tests" / self.name


MYSQL = Package("mysql", "mysql-server-core", "usr/sbin/mysqld", ("usr/share/mysql", "usr/share/mysql-8.0"))
VALKEY = Package("valkey", "valkey-server", "usr/bin/valkey-server")


def unpack(package: Package) -> list[str | Path]:
    """How the server is called, with the loader and the libraries beside it."""
    root = _unpacked(package)
    loader = next(root.glob("**/ld-linux*.so.*"), None)
    if loader is None or not (root / package.program).exists():
        raise NotUnpacked(f"{root} holds no server that can be run; delete it")
    libraries = os.pathsep.join(sorted({str(library.parent) for library in root.glob("**/lib*.so.*")}))
    return [loader, "--library-path", libraries, root / package.program]


def _unpacked(package: Package) -> Path:
    """All at once or not at all: another run may be at it."""
    target = package.folder
    if target.exists():
        return target
    for name in ("apt-get", "dpkg-deb"):
        if shutil.which(name) is None:
            raise NotUnpacked(f"its packages cannot be unpacked without {name}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="making-") as made:
        folder = Path(made)
        for file in _downloaded(package.prefix, folder):
            _run("dpkg-deb", "-x", file, folder / "all")
        for kept in (*_KEPT, str(Path(package.program).parent), *package.needs):
            if (folder / "all" / kept).exists() and not (folder / "all" / kept).is_symlink():
                shutil.copytree(folder / "all" / kept, folder / "root" / kept, symlinks=True)
        with suppress(OSError):  # somebody else was quicker
            (folder / "root").rename(target)
    return target


def _downloaded(prefix: str, folder: Path) -> list[Path]:
    """The server's package and all that it needs, whatever is installed here: for apt, nothing is."""
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True)
    (folder / "status").touch()
    folder.chmod(0o755)  # apt downloads as somebody else, if it is run by root
    settings = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "APT::Install-Recommends": "false",
        "Acquire::Check-Valid-Until": "false",  # of a mirror that stands still
    }
    options = [option for name, value in settings.items() for option in ("-o", f"{name}={value}")]
    options += _updated(folder, options)
    names = _run("apt-cache", *options, "pkgnames", prefix).split()
    if not names:
        raise NotUnpacked(f"apt knows no package {prefix}")
    newest = max(names, key=lambda name: [int(number) for number in re.findall(r"\d+", name)] or [1_000_000])
    _run("apt-get", *options, "--download-only", "-y", "install", newest)
    return sorted((folder / "cache" / "archives").glob("*.deb"))


def _updated(folder: Path, options: list[str]) -> list[str]:
    """More options with which apt knows of these. Debian has all of them only in its unstable suite."""
    if "ID=debian" not in Path("/etc/os-release").read_text().splitlines():
        _run("apt-get", *options, "update")
        return []
    sources = folder / "sources.list"
    more = ["-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=/dev/null"]
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    trust = f"[signed-by={keyring}] " if keyring.exists() else ""
    reasons = []
    for mirror in dict.fromkeys(_run("apt-get", "indextargets", "--format", "$(REPO_URI)").split()):
        sources.write_text(f"deb {trust}{mirror} sid main\n")
        try:
            _run("apt-get", *options, *more, "update")
        except NotUnpacked as error:  # a mirror of something else, such as security updates
            reasons.append(str(error))
        else:
            return more
    raise NotUnpacked("; ".join(reasons) or "apt has no sources")


def _run(*command: str | Path) -> str:
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotUnpacked(f"{command[0]} failed: {error}") from error
    if done.returncode:
        raise NotUnpacked(f"{command[0]} failed: {done.stderr[-500:].strip()}")
    return done.stdout
