"""Which outbox a command works with, and what it says when there is none."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import pytest

from aftercommit import AsyncOutbox, Outbox, SchemaMissing
from aftercommit.cli.command import Call
from aftercommit.cli.session import Session
from aftercommit.cli.targets import Target, chosen, open_target
from aftercommit.errors import CannotStart
from tests.cli.kit import write_shop


@pytest.fixture(autouse=True)
def in_a_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shop(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {name: each for name, each in sys.modules.items() if name != "shop"})
    for name in [name for name in os.environ if name.startswith("AFTERCOMMIT_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("shop:outbox", Outbox), ("shop:aio", AsyncOutbox), ("shop:make", Outbox), ("shop.py:outbox", Outbox)],
)
def test_an_outbox_is_named_by_its_module_or_file_or_made_by_a_function(path: str, kind: type) -> None:
    with _session(Target(app=path)) as session:
        assert isinstance(session.outbox, kind)
        session.ask(lambda outbox: outbox.create_schema())
        assert session.ask(lambda outbox: outbox.stats()).backlog.new == 0


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("shop", "no target"),
        ("shoop:outbox", "no module 'shoop'"),
        ("shoop.py:outbox", "no file shoop.py"),
        ("shop:outbx", "has no attribute 'outbx'; it defines: .*outbox.* did you mean shop:outbox"),
        ("shop:number", "is a builtins.int, and no outbox"),
        ("broken:outbox", "could not be loaded: ZeroDivisionError"),
        ("needing:outbox", "could not be loaded: ModuleNotFoundError: No module named 'nowhere'"),
        ("failing:make", r"failing:make\(\) failed: ValueError: password=\*\*\*"),
    ],
)
def test_what_is_no_outbox_is_told_with_the_reason(path: str, said: str) -> None:
    Path("broken.py").write_text("1 / 0")
    Path("needing.py").write_text("import nowhere")
    Path("failing.py").write_text("def make(): raise ValueError('password=canary')")
    with pytest.raises(CannotStart, match=f"(?s){said}"):
        open_target(Call(), Target(app=path))


def test_what_is_named_on_the_command_line_wins_over_the_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERCOMMIT_APP", "shop:outbox")
    monkeypatch.setenv("AFTERCOMMIT_URL", "sqlite:///there.db")
    assert chosen(Call(), Target(url="sqlite:///here.db")).url == "sqlite:///here.db"
    assert chosen(Call(), Target()) == Target(app="shop:outbox")
    monkeypatch.delenv("AFTERCOMMIT_APP")
    assert chosen(Call(), Target()) == Target(url="sqlite:///there.db")
    monkeypatch.delenv("AFTERCOMMIT_URL")
    with pytest.raises(CannotStart, match="AFTERCOMMIT_APP"):
        chosen(Call(), Target())
    with pytest.raises(click.UsageError):
        chosen(Call(), Target(app="a:b", url="sqlite://"))


def test_a_url_leads_to_an_ordered_table_as_it_is(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ordered.db'}"
    with Outbox.ordered(url, on_dead="continue", create_schema=True):
        pass
    with _session(Target(url=url)) as session:
        assert session.ask(lambda outbox: outbox.stats()).backlog.new == 0
        assert (session.outbox.config.ordered, session.outbox.config.on_dead) == (True, "continue")


def test_a_url_that_is_misspelt_makes_no_file(tmp_path: Path) -> None:
    with _session(Target(url=f"sqlite:///{tmp_path / 'typo.db'}")) as session, pytest.raises(SchemaMissing):
        session.ask(lambda outbox: outbox.stats())
    assert not (tmp_path / "typo.db").exists()


def _session(target: Target) -> Session:
    return Session(Call(), target, lambda **kept: open_target(Call(), target, **kept))
