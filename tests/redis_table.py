"""The keys of one outbox on Redis: its rows behind the store's back, and all that leads to them."""

from __future__ import annotations

from typing import Any

import msgspec
import redis

from aftercommit.stores.redis.rows import ENVELOPE, ROW, whole_row
from aftercommit.stores.redis.scripts import KeyNames

Row = dict[str, Any]

#: Rows and envelopes of one moment. A server that is full refuses a MULTI, and no script that only reads.
BOTH = "return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}"

#: Rows with a lease that have this word in them, of one moment.
LEASED = """
local found = {}
for _, position in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local row = redis.call('HGET', KEYS[2], position)
  if row and string.find(row, ARGV[1], 1, true) then
    found[#found + 1] = row
  end
end
return found
"""

#: Rows that have this word in them: a page of all, and where the next one begins.
NAMING = """
local page, found = redis.call('HSCAN', KEYS[1], ARGV[2], 'COUNT', 1000), {}
for i = 2, #page[2], 2 do
  if string.find(page[2][i], ARGV[1], 1, true) then
    found[#found + 1] = page[2][i]
  end
end
return { page[1], found }
"""

#: Where a row can be found by more than its position.
INDICES = ("free", "leased", "order", "retry", "dead", "dead_keys", "dead_at", "done")


class RedisTable:
    """The keys of one outbox: rows as they are kept there, and put back with all that leads to them."""

    def __init__(self, url: str, table: str) -> None:
        address, _, self.client_name = url.partition("?client_name=")
        # Many rows take their time, on a machine that has others to serve.
        self.client = redis.Redis.from_url(address.partition("?")[0], socket_timeout=120)
        self.names = KeyNames(table)
        #: Positions whose rows do not share the envelope of their event.
        self._own: dict[int, bool] = {}

    def now(self) -> int:
        seconds, micros = self.client.time()
        return int(seconds) * 1_000_000 + int(micros)

    def clear(self) -> None:
        self.client.delete(*self.client.scan_iter(f"{self.names[''].decode()}*", count=10_000), b"nothing")

    # -------------------------------------------------------- reading

    def rows(self, table: str) -> list[Row]:
        match table:
            case "outbox_event":
                return self._events()
            case "outbox_instance":
                names = ("host", "pid", "started_at", "heartbeat_at")
                return [{"id": name, **row, "status": 0} for name, row in self._packed("members", names).items()]
            case _:
                found = self._packed("partitions", ("owner", "epoch", "expires_at"))
                return [{"partition_no": int(number), **row} for number, row in found.items()]

    def may_have(self, count: int, status: int) -> bool:
        """What an index says of it, where a status has one."""
        match status:
            case 1:
                return int(self.client.zcard(self.names["done"])) >= count
            case 3:
                return int(self.client.zcard(self.names["dead"])) >= count
        return True

    def leased(self, word: str) -> list[Row]:
        """Those in which it stands, without their envelopes."""
        found = self.client.eval(LEASED, 2, self.names["leased"], self.names["rows"], word)
        return [whole_row(packed, None) for packed in found]

    def naming(self, word: str) -> list[Row]:
        """All rows in which it stands, leased or not. One that changes meanwhile may be there twice."""
        found, cursor = list[bytes](), b""
        while cursor != b"0":
            cursor, page = self.client.eval(NAMING, 1, self.names["rows"], word, cursor or b"0")
            found += page
        return [whole_row(packed, None) for packed in found]

    def _packed(self, noun: str, names: tuple[str, ...]) -> dict[str, Row]:
        found = self.client.hgetall(self.names[noun])
        cells = {key.decode(): msgspec.msgpack.decode(packed) for key, packed in found.items()}
        return {
            key: {name: None if cell is False else cell for name, cell in zip(names, row, strict=True)}
            for key, row in cells.items()
        }

    def _events(self) -> list[Row]:
        found = self.client.eval(BOTH, 2, self.names["rows"], self.names["events"])
        rows, envelopes = (dict(zip(each[::2], each[1::2], strict=True)) for each in found)
        return [self._event(rows[position], envelopes, int(position)) for position in sorted(rows)]

    def _event(self, packed: bytes, envelopes: dict[bytes, bytes], position: int) -> Row:
        row = whole_row(packed, None)
        self._own[position] = bool(row["has_own_envelope"])
        if envelope := envelopes.get(self._envelope_of(row["event_id"], position).encode()):
            row |= zip(ENVELOPE, msgspec.msgpack.decode(envelope), strict=True)
        is_text = isinstance(row["payload"], str)
        payload = {"payload": row["payload"] if is_text else None, "payload_bytes": None if is_text else row["payload"]}
        places = {"position": position, "partition_no": int(row["lane"][:3]), "unique_key": None}  # which it keeps not
        return row | payload | places

    def _envelope_of(self, event_id: str, position: int) -> str:
        return f"{event_id}\0{position:016}" if self._own[position] else event_id

    # -------------------------------------------------------- writing

    def replace(self, table: str, before: dict[Any, Row], after: dict[Any, Row]) -> None:
        """What a statement has changed."""
        with self.client.pipeline(transaction=True) as pipeline:
            for key in before.keys() - after.keys():
                self._drop(pipeline, table, key, before[key])
            for key, row in after.items():
                if row != before.get(key):
                    self._put(pipeline, table, key, row)
            pipeline.execute()

    def _drop(self, pipeline: Any, table: str, key: Any, row: Row) -> None:
        if table != "outbox_event":
            pipeline.hdel(self.names["members" if table == "outbox_instance" else "partitions"], key)
            return
        self._forget(pipeline, row)
        pipeline.hdel(self.names["rows"], _position(row))
        pipeline.hdel(self.names["ids"], row["event_id"])
        pipeline.hdel(self.names["events"], self._envelope_of(row["event_id"], row["position"]))

    def _put(self, pipeline: Any, table: str, key: Any, row: Row) -> None:
        match table:
            case "outbox_event":
                self._put_event(pipeline, row)
            case "outbox_instance":
                cells = [row["host"], row["pid"], row["started_at"], row["heartbeat_at"]]
                pipeline.hset(self.names["members"], key, msgspec.msgpack.encode(cells))
            case _:
                cells = [row["owner"] or False, row["epoch"], row["expires_at"] or False]
                pipeline.hset(self.names["partitions"], key, msgspec.msgpack.encode(cells))

    def _put_event(self, pipeline: Any, row: Row) -> None:
        key = row["event_id"] if row["event_key"] is None else row["event_key"]
        row = {**row, "lane": f"{row['partition_no']:03}{key}", "has_own_envelope": self._own[row["position"]]}
        if not row["locked_by"]:
            row["lease_until"] = None
        kept = row | {"payload": row["payload_bytes"] if row["payload"] is None else row["payload"]}
        cells = [False if row[name] is None else row[name] for name in ROW]
        pipeline.hset(self.names["rows"], _position(row), msgspec.msgpack.encode(cells))
        name = self._envelope_of(row["event_id"], row["position"])
        pipeline.hset(self.names["events"], name, msgspec.msgpack.encode([kept[name] for name in ENVELOPE]))
        self._forget(pipeline, row)
        for noun, (member, score) in places_of(row).items():
            if noun == "retry":
                pipeline.sadd(self.names[noun], member)
            else:
                pipeline.zadd(self.names[noun], {member: score})

    def _forget(self, pipeline: Any, row: Row) -> None:
        key = row["event_id"] if row["event_key"] is None else row["event_key"]
        lane = f"{row['partition_no']:03}{key}\0{_position(row)}"
        for noun in INDICES:
            remove = pipeline.srem if noun == "retry" else pipeline.zrem
            remove(self.names[noun], lane if noun in ("order", "dead_keys") else _position(row))

    def check(self) -> None:
        """Nothing is half written: every row is where its state says, and nowhere else, and so is its envelope."""
        rows = self._events()
        wanted: dict[str, dict[str, float]] = {noun: {} for noun in INDICES}
        for row in rows:
            for noun, (member, score) in places_of(row).items():
                wanted[noun][member] = score
        for noun in INDICES:
            name = self.names[noun]
            found = dict.fromkeys(self.client.smembers(name), 0.0) if noun == "retry" else dict(self._scores(name))
            assert {member.decode(): score for member, score in found.items()} == wanted[noun], noun
        names = {
            "ids": {row["event_id"] for row in rows},
            "events": {self._envelope_of(row["event_id"], row["position"]) for row in rows},
        }
        for noun, wanted_names in names.items():
            assert {name.decode() for name in self.client.hkeys(self.names[noun])} == wanted_names, noun
        last = int(self.client.hget(self.names["meta"], "position") or 0)
        assert all(row["position"] <= last for row in rows)

    def _scores(self, name: bytes) -> list[tuple[bytes, float]]:
        return list(self.client.zrange(name, 0, -1, withscores=True))


def _position(row: Row) -> str:
    return f"{row['position']:016}"


def places_of(row: Row) -> dict[str, tuple[str, float]]:
    """Where a row must be found, by its state, and with which score."""
    position, lane = _position(row), f"{row['lane']}\0{_position(row)}"
    match row["status"]:
        case 1:
            return {"done": (position, row["done_at"])}
        case 3:
            return {
                "dead": (position, row["position"]),
                "dead_keys": (lane, 0),
                "dead_at": (position, row["done_at"]),
            }
    is_leased = bool(row["locked_by"]) and row["lease_until"] is not None
    place = {"leased": (position, row["lease_until"])} if is_leased else {"free": (position, row["available_at"])}
    return {**place, "order": (lane, 0)} | ({"retry": (position, 0)} if row["status"] == 2 else {})
