"""`aftercommit status`: how it goes, in numbers."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any, Final

import click

from aftercommit.cli.command import Command, json_option
from aftercommit.cli.exits import Exit
from aftercommit.cli.output import Output, span
from aftercommit.cli.session import Session
from aftercommit.cli.targets import takes_outbox
from aftercommit.events.durations import seconds_of

#: `oldest>5m`, `dead > 0`.
_TERM: Final = re.compile(r"\s*(?P<name>[a-z_]+)\s*(?P<sign>>=|>)\s*(?P<value>[\w.]+)\s*")

_NUMBERS: Final = ("pending", "retrying", "in_flight", "dead", "blocked", "oldest")


@click.command(cls=Command)
@takes_outbox(positional=True)
@json_option
@click.option("--watch", metavar="INTERVAL", help="Again every so often, until Ctrl-C: 2s.")
@click.option("--fail-if", metavar="TERMS", help="End with 1 if one is true: 'oldest>5m or dead>0'.")
def status(*, session: Session, as_json: bool, watch: str | None, fail_if: str | None) -> Exit:
    """Show what waits, what is dead, who delivers, and how far behind it is."""
    limits = [] if fail_if is None else limits_of(fail_if)
    while True:
        found = gathered(session)
        if as_json:
            session.output.json("status/1", **found)
        else:
            _show(session.output, found)
        if watch is None:
            break
        _pause(watch)
    return _judged(session.output, found, limits)


def gathered(session: Session) -> dict[str, Any]:
    """All of it as plain data."""
    stats = session.ask(lambda outbox: outbox.stats())
    summary = session.ask(lambda outbox: outbox.records.summary())
    backlog = stats.backlog
    return {
        "outbox": session.outbox._store.where,
        "pending": backlog.new,
        "retrying": backlog.retry,
        "in_flight": backlog.leased,
        "dead": backlog.dead,
        "oldest_seconds": backlog.oldest_due.total_seconds(),
        "is_partial": summary.is_partial,
        "types": [_type(each) for each in summary.types],
        "blocked": [{"key": each.key, "event_id": each.event_id, "error": each.error} for each in stats.blocked],
        "paused": _paused(session),
        **_fleet(session),
    }


def _type(each: Any) -> dict[str, Any]:
    oldest = None if each.oldest_due is None else each.oldest_due.total_seconds()
    return {
        "event_type": each.event_type,
        "handler": each.handler_id,
        "pending": each.new,
        "retrying": each.retry,
        "dead": each.dead,
        "oldest_seconds": oldest,
    }


def _paused(session: Session) -> list[dict[str, Any]]:
    if session.outbox._store.pauses is None:
        return []
    pauses = session.ask(lambda outbox: outbox.paused())
    return [
        {
            "kind": each.kind.value,
            "name": each.name,
            "reason": each.reason,
            "by": each.paused_by,
            "since_seconds": each.lasted.total_seconds(),
            "until": each.until,
        }
        for each in pauses
    ]


def _fleet(session: Session) -> dict[str, Any]:
    """Only instances of ordered outboxes join it."""
    if not session.outbox.config.ordered:
        return {"instances": None, "unowned_partitions": None}
    cluster = session.ask(lambda outbox: outbox.cluster())
    members = [
        {
            "id": each.id,
            "host": each.host,
            "pid": each.pid,
            "silent_seconds": each.silent_for.total_seconds(),
            "is_stale": each.is_stale,
            "partitions": len(each.partitions),
        }
        for each in cluster.members
    ]
    return {"instances": members, "unowned_partitions": len(cluster.unowned)}


def _show(output: Output, found: dict[str, Any]) -> None:
    output.say(found["outbox"])
    numbers = [*((name.replace("_", " "), found[name]) for name in _NUMBERS[:4])]
    output.line("  ".join(f"{name} {value:,}" for name, value in numbers) + f"  oldest {span(found['oldest_seconds'])}")
    if found["types"]:
        output.line()
        columns = ("type", "handler", "pending", "retrying", "dead", "oldest")
        output.table(columns, [_cells(each) for each in found["types"]])
    if found["is_partial"]:
        output.say("there are more rows than were looked at: the counts by type stand for so many or more")
    for each in found["blocked"]:
        output.line(f"blocked: the key {each['key']} behind {each['event_id']} ({each['error']})")
    for each in found["paused"]:
        why = f": {each['reason']}" if each["reason"] else ""
        output.line(
            f"paused: the {each['kind']} {each['name']} for {span(each['since_seconds'])}, by {each['by']}{why}"
        )
    if found["instances"] is not None:
        output.line()
        output.table(("instance", "host", "pid", "partitions", "silent"), map(_member, found["instances"]))
        output.line(f"partitions without an owner: {found['unowned_partitions']}")


def _cells(each: dict[str, Any]) -> list[object]:
    oldest = None if each["oldest_seconds"] is None else timedelta(seconds=each["oldest_seconds"])
    return [each["event_type"], each["handler"], each["pending"], each["retrying"], each["dead"], oldest]


def _member(each: dict[str, Any]) -> list[object]:
    return [each["id"], each["host"], str(each["pid"]), each["partitions"], span(each["silent_seconds"])]


def _pause(watch: str) -> None:
    from time import sleep  # noqa: PLC0415  (only who watches waits)

    sleep(seconds_of(watch, name="--watch"))


# ---------------------------------------------------------------- --fail-if


def limits_of(text: str) -> list[tuple[str, str, float]]:
    """Terms joined by `or`: a number of this command, `>` or `>=`, and a limit."""
    found = []
    for term in re.split(r"\bor\b|,", text):
        match = _TERM.fullmatch(term)
        if match is None or match["name"] not in _NUMBERS:
            known = ", ".join(_NUMBERS)
            raise click.UsageError(f"--fail-if: {term.strip()!r} is no term such as oldest>5m or dead>0 ({known})")
        found.append((match["name"], match["sign"], _value(match["name"], match["value"])))
    return found


def _value(name: str, text: str) -> float:
    if name == "oldest":
        return seconds_of(text, name="--fail-if oldest")
    if not text.isdecimal():
        raise click.UsageError(f"--fail-if: {name} is compared with a whole number, and not with {text!r}")
    return int(text)


def _judged(output: Output, found: dict[str, Any], limits: list[tuple[str, str, float]]) -> Exit:
    values = {**found, "oldest": found["oldest_seconds"], "blocked": len(found["blocked"])}
    broken = False
    for name, sign, limit in limits:
        value = values[name]
        if value > limit or (sign == ">=" and value == limit):
            broken = True
            shown = (span(value), span(limit)) if name == "oldest" else (f"{value:,}", f"{limit:,}")
            output.complain(f"{name.replace('_', ' ')} is {shown[0]}, limit {shown[1]}")
    return Exit.PROBLEM if broken else Exit.OK
