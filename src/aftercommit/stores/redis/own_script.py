"""A Lua script of the user's that appends events: what it reads, what it changes and what it appends is one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NoReturn

from aftercommit.errors import UnsupportedTransaction
from aftercommit.events.claims import NewEvent
from aftercommit.stores.redis.rows import new_row
from aftercommit.stores.redis.scripts import Script, Word

#: Before the user's text. The keys and words of the outbox stand behind the user's own.
_BEFORE: Final = """\
local function append()
  local function behind(own, first)
    local rest = {{}}
    for i = first + 1, #own do
      rest[i - first] = own[i]
    end
    return rest
  end
  local function run(KEYS, ARGV)
{append}
  end
  local reply = run(behind(KEYS, {keys}), behind(ARGV, {words}))
  if reply.err then
    error(reply.err)
  end
end
"""


class OwnScript:
    """`append()` in its text writes the events that were given to it by `outbox.write(…, tx=script)`, or none where it
    is not called. `client.eval(*script.call())` runs it, with a client of either colour."""

    def __init__(self, text: str, *, keys: Sequence[Word] = (), arguments: Sequence[Word] = ()) -> None:
        self._text = text
        self._keys = tuple(keys)
        self._arguments = tuple(arguments)
        self._append: Script | None = None
        self._events: list[Word] = []

    def add(self, append: Script, events: Sequence[NewEvent]) -> None:
        """Events of one outbox."""
        if self._append not in (None, append):
            raise UnsupportedTransaction(
                "the script has events of another outbox", fix="one OwnScript for each outbox; keys of two are apart"
            )
        self._append = append
        for each in events:
            self._events += new_row(each)

    def call(self) -> tuple[Word, ...]:
        """What EVAL takes: the text, the number of keys, the keys and the arguments."""
        if self._append is None:
            raise UnsupportedTransaction(
                "the script has no event", fix="outbox.write(…, tx=script) before script.call()"
            )
        before = _BEFORE.format(append=self._append.text.decode(), keys=len(self._keys), words=len(self._arguments))
        keys = (*self._keys, *self._append.keys)
        return (before + self._text, len(keys), *keys, *self._arguments, 0, *self._events)


class AdoptedScript:
    """A script as a transaction that a write joins. Nobody hears when it has run, or whether it has called append()."""

    is_active = True
    is_begun = False
    mark = None

    def __init__(self, script: OwnScript, append: Script) -> None:
        self._script = script
        self._append = append

    def add(self, events: Sequence[NewEvent]) -> None:
        self._script.add(self._append, events)

    async def execute(self, sql: str, parameters: Sequence[object] = ()) -> int:
        _refuse_sql()

    async def execute_many(self, sql: str, parameters: Sequence[Sequence[object]]) -> int:
        _refuse_sql()

    async def fetch(self, sql: str, parameters: Sequence[object] = ()) -> list[object]:
        _refuse_sql()


def _refuse_sql() -> NoReturn:
    raise UnsupportedTransaction("a script of Redis runs no SQL", fix="write it in the script's own text, in Lua")
