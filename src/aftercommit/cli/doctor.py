"""`aftercommit doctor`: what hurts, and how to mend it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import click
from msgspec.structs import asdict

from aftercommit.cli.command import Command, json_option
from aftercommit.cli.exits import Exit
from aftercommit.cli.output import Output
from aftercommit.cli.session import Session, as_made
from aftercommit.cli.targets import takes_outbox

if TYPE_CHECKING:
    from aftercommit.events.findings import Finding

#: Whether the database can be reached.
_REACHED: Final = "AC100"

#: Whether the schema fits.
_FITS: Final = "AC101"

_LABELS: Final = {"ok": "ok", "warning": "warn", "failure": "FAIL", "unknown": "?"}


@click.command(cls=Command)
@takes_outbox(positional=True)
@json_option
@click.option("--strict", is_flag=True, help="End with 1 for warnings as well.")
def doctor(*, session: Session, as_json: bool, strict: bool) -> Exit:
    """Look for what hurts in production, and say how to mend it. Changes nothing."""
    findings = _examined(session)
    counts = Counter(each.level.value for each in findings)
    if as_json:
        rows = [{**asdict(each), "level": each.level.value} for each in findings]
        session.output.json("doctor/1", failures=counts["failure"], warnings=counts["warning"], findings=rows)
    else:
        for each in findings:
            _show(session.output, each)
        session.output.say(_verdict(counts))
    return _exit_of(findings, counts, strict=strict)


def _examined(session: Session) -> list[Finding]:
    findings: list[Finding] = session.ask(lambda outbox: outbox.diagnose())
    if session.target.has_handlers or not any(each.code == _FITS and each.is_problem for each in findings):
        return findings
    as_made(session)
    again: list[Finding] = session.ask(lambda outbox: outbox.diagnose())
    return again


def _show(output: Output, finding: Finding) -> None:
    output.line(f"{_LABELS[finding.level.value]:<5} {finding.code} {finding.what}")
    if finding.fix:
        output.line(f"      fix: {finding.fix}")
    if finding.sql:
        output.line(f"      sql: {' '.join(finding.sql.split())}")


def _verdict(counts: Counter[str]) -> str:
    failures, warnings = counts["failure"], counts["warning"]
    if not failures and not warnings:
        return f"all is well ({counts['ok']} checks, {counts['unknown']} could not be made)"
    return f"{failures + warnings} problems ({failures} failures, {warnings} warnings)"


def _exit_of(findings: list[Finding], counts: Counter[str], *, strict: bool) -> Exit:
    if any(each.code == _REACHED and each.is_problem for each in findings):
        return Exit.UNREACHABLE
    return Exit.PROBLEM if counts["failure"] or (strict and counts["warning"]) else Exit.OK
