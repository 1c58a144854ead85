"""Lua as data: one operation per file, its first line the promise, its second line the keys that it touches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final

from aftercommit.errors import InvalidOption
from aftercommit.stores.sql.statements import checked_name

#: How the keys are laid out. A process with scripts for another layout is refused by the server's own facts, in every
#: call, so that two layouts are never mixed.
LAYOUT: Final = "1"

#: What must run where there is no layout yet.
_WITHOUT_PRELUDE: Final = ("setup",)

#: What an argument of a command may be.
Word = str | bytes | int

#: What a reply is made of: integers, bytes, lists of both, and None.
Command = tuple[Word, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """One operation for the keys of one outbox."""

    text: bytes
    sha: bytes
    keys: tuple[bytes, ...]

    def by_sha(self, arguments: Sequence[Word]) -> Command:
        """For a server that knows it."""
        return (b"EVALSHA", self.sha, len(self.keys), *self.keys, *arguments)

    def whole(self, arguments: Sequence[Word]) -> Command:
        """For a server that may not know it, and learns it now."""
        return (b"EVAL", self.text, len(self.keys), *self.keys, *arguments)


@dataclass(frozen=True, slots=True)
class KeyNames:
    """The keys of one outbox. All have one hash tag, so that they lie in one slot of a cluster."""

    table: str

    def __post_init__(self) -> None:
        checked_name(self.table, "table")
        if self.table.lower() == "outbox":
            raise InvalidOption(f"table is {self.table!r}", fix="use outbox_event, or a name such as shop_outbox")

    def __getitem__(self, noun: str) -> bytes:
        return f"{{{self.table}}}:{noun}".encode()


@cache
def scripts_of(names: KeyNames) -> dict[str, Script]:
    """All operations, by the names of their files."""
    texts = _texts()
    prelude = texts["prelude"]
    found = {}
    for name, text in texts.items():
        if name == "prelude":
            continue
        nouns = _keys_of(name, text)
        said = f"local {', '.join(nouns)} = {', '.join(f'KEYS[{n}]' for n in range(1, len(nouns) + 1))}\n"
        before = "" if name in _WITHOUT_PRELUDE else f"local LAYOUT = '{LAYOUT}'\n{prelude}"
        whole = f"{said}{before}{text}".encode()
        sha = sha1(whole, usedforsecurity=False).hexdigest().encode()
        found[name] = Script(whole, sha, tuple(names[noun] for noun in nouns))
    return found


def _keys_of(name: str, text: str) -> list[str]:
    second = text.split("\n")[1:4]
    for line in second:
        if line.startswith("-- KEYS: "):
            return line.removeprefix("-- KEYS: ").split()
    raise AssertionError(f"{name}.lua does not say its keys")


@cache
def _texts() -> dict[str, str]:
    folder = files("aftercommit.stores.redis").joinpath("lua")
    return {each.name[:-4]: each.read_text() for each in folder.iterdir() if each.name.endswith(".lua")}
