"""Settings, checks and the outboxes that follow from them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import django
import pytest
from django.core.checks import run_checks
from django.db import connections, transaction

import aftercommit
from aftercommit import EventEnvelope, InvalidOption, WriterHook
from aftercommit.django import DjangoOutbox, outbox, outbox_for, outboxes
from aftercommit.django.conf import options_of
from aftercommit.runtime.threads import run
from tests.django import kit
from tests.support import PATIENCE


class Hook(WriterHook):
    """Named by its path in settings."""


hook = Hook()


def test_there_is_one_outbox_for_each_database() -> None:
    assert outbox is outbox_for() is outbox_for("default")
    assert outbox_for("second") is outbox_for("second") is not outbox
    assert (outbox.alias, outbox_for("second").alias) == ("default", "second")
    assert (outbox.config.worker_count, outbox_for("second").config.worker_count) == (2, 4)


def test_a_database_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no database 'elsewhere'") as caught:
        outbox_for("elsewhere")
    assert "default" in caught.value.fix


def test_wirings_are_settings_here() -> None:
    with pytest.raises(InvalidOption, match=r"no multi_node\(\)"):
        DjangoOutbox.multi_node("default")


def test_the_package_has_no_other_names() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'outboxen'"):
        aftercommit.django.outboxen  # noqa: B018


def test_objects_may_be_named_by_their_path(settings_of: Any) -> None:
    paths = {
        "writer_hook": f"{__name__}.hook",
        "interceptors": ["aftercommit.EventInterceptor"],
        "context_providers": [f"{__name__}.dict"],
        "poll_interval": "1s",
    }
    with settings_of(AFTERCOMMIT={"default": paths}), pytest.raises(InvalidOption, match=r"'.*\.dict'"):
        options_of("default")
    del paths["context_providers"]
    with settings_of(AFTERCOMMIT={"default": paths}):
        options = options_of("default")
    made = DjangoOutbox("default", **options)
    assert made.config.writer_hook is hook
    assert [type(each) for each in made.config.interceptors] == [aftercommit.EventInterceptor]
    assert made.config.poll_interval.total_seconds() == 1


def test_a_retry_policy_may_be_named(settings_of: Any) -> None:
    """By its name, by its name and properties, or, as any object, by its path."""
    named: list[tuple[Any, Any]] = [
        ("fixed", aftercommit.Fixed()),
        ({"policy": "fixed", "delay": "1s"}, aftercommit.Fixed("1s")),
        ("aftercommit.NoRetry", aftercommit.NoRetry()),
    ]
    for given, policy in named:
        with settings_of(AFTERCOMMIT={"default": {"retry_policy": given}}):
            assert DjangoOutbox("default", **options_of("default")).config.retry_policy == policy
    with settings_of(AFTERCOMMIT={"default": {"retry_policy": "fxied"}}), pytest.raises(InvalidOption, match="'fxied'"):
        DjangoOutbox("default", **options_of("default"))


@pytest.mark.parametrize("wrong", [{"default": 3}, ["default"], {"nowhere": {}}, {"third": {"worker_counts": 1}}])
def test_wrong_settings_are_said_by_the_checks(wrong: Any, settings_of: Any, tmp_path: Path) -> None:
    kit.add_database("third", kit.sqlite_settings(tmp_path / "third.sqlite3"))
    try:
        with settings_of(AFTERCOMMIT=wrong):
            from aftercommit.django.checks import check_settings

            if wrong == {"default": 3}:  # made already with the right ones
                with pytest.raises(InvalidOption):
                    options_of("default")
                return
            (problem,) = check_settings()
            assert (problem.id, bool(problem.hint)) == ("aftercommit.E001", True)
    finally:
        kit.remove_database("third")


#: A project as `manage.py check` meets it: an app whose models and handlers import the outbox.
PROJECT = """
from django.conf import settings
from django.core.management import execute_from_command_line

database = {{"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.sqlite3", "OPTIONS": {mode}}}
settings.configure(
    DATABASES={{"default": database}}, INSTALLED_APPS=["aftercommit.django", "shop"], AFTERCOMMIT={given}
)
execute_from_command_line(["manage.py", "check"])
"""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"default": {"worker_counts": 1}}, ("there is no option worker_counts=1", "did you mean worker_count?")),
        (["default"], ("AFTERCOMMIT is ['default']", "worker_count")),
    ],
)
def test_a_mistake_in_the_settings_is_a_line_of_the_check(given: Any, said: tuple[str, str], tmp_path: Path) -> None:
    app = tmp_path / "shop"
    app.mkdir()
    (app / "__init__.py").touch()
    (app / "models.py").write_text("from aftercommit.django import outbox\n")
    (app / "handlers.py").write_text("from shop.models import outbox\noutbox.register('Placed', print)\n")
    ran = subprocess.run(
        [sys.executable, "-c", PROJECT.format(given=given, mode=kit.IMMEDIATE)],
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{Path(aftercommit.__file__).parents[1]}:{tmp_path}"},
    )
    problem, hint = said
    assert f"aftercommit.E001) {problem}" in ran.stderr
    assert hint in ran.stderr.partition("HINT: ")[2]
    assert "Traceback" not in ran.stderr


def test_an_outbox_with_wrong_settings_refuses_to_work(settings_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers run no checks, so whoever uses it is told."""
    monkeypatch.setattr(outboxes, "_outboxes", {})
    with settings_of(AFTERCOMMIT={"default": {"worker_counts": 1}}):
        unmade = aftercommit.django.outbox
        for use in (lambda: unmade.write("Placed", 1), lambda: unmade.start, outbox_for):
            with pytest.raises(InvalidOption, match="worker_counts"):
                use()


def mode_problems() -> list[Any]:
    return [each for each in run_checks() if each.id == "aftercommit.W001"]


@pytest.mark.parametrize(("mode", "count"), [(None, 1), ("DEFERRED", 1), ("immediate", 0), ("EXCLUSIVE", 0)])
def test_sqlite_should_begin_at_once(file_alias: str, settings_of: Any, mode: str | None, count: int) -> None:
    connections[file_alias].settings_dict["OPTIONS"] = {} if mode is None else {"transaction_mode": mode}
    with settings_of(AFTERCOMMIT={file_alias: {}}):
        problems = mode_problems()
    assert len(problems) == count
    for problem in problems:
        assert 'DATABASES[\'sqlite\']["OPTIONS"] = {"transaction_mode": "IMMEDIATE"}' in problem.hint
        assert ("upgrade to Django 5.1" in problem.hint) is (django.VERSION < (5, 1))


def test_other_databases_need_no_mode(memory_alias: str, settings_of: Any) -> None:
    connections[memory_alias].settings_dict["OPTIONS"] = {}
    with settings_of(AFTERCOMMIT={memory_alias: {}}):
        assert mode_problems() == []


def test_a_table_of_another_name(file_alias: str, settings_of: Any) -> None:
    from django.core.management import call_command

    call_command("migrate", "aftercommit", "zero", database=file_alias, verbosity=0)
    with settings_of(AFTERCOMMIT={file_alias: {"table": "shop_outbox"}}):
        call_command("migrate", "aftercommit", database=file_alias, verbosity=0)
        made, seen = DjangoOutbox(file_alias, **options_of(file_alias)), []
        made.register("Placed", seen.append)
        with transaction.atomic(using=file_alias):
            made.write("Placed", 1)
        made.drain()
        made.close()
        assert len(seen) == 1
        assert {"shop_outbox", "shop_outbox_schema"} <= set(connections[file_alias].introspection.table_names())
        call_command("migrate", "aftercommit", "zero", database=file_alias, verbosity=0)
        assert not {"shop_outbox", "shop_outbox_schema"} & set(connections[file_alias].introspection.table_names())


def test_a_target_of_its_own_for_the_workers(file_alias: str, tmp_path: Path) -> None:
    made, seen = DjangoOutbox(file_alias, target=f"sqlite:///{tmp_path / 'shop.sqlite3'}"), []
    made.register("Placed", seen.append)
    with transaction.atomic(using=file_alias):
        made.write("Placed", 1)
    made.drain()
    made.close()
    assert len(seen) == 1


OPTIONS: list[dict[str, Any]] = [{"server_side_binding": True}, {"options": "-c search_path=public"}]
if django.VERSION >= (5, 1):
    OPTIONS.append({"pool": True})


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: next(iter(options)))
def test_options_of_postgres(alias: str, make_outbox: Any, options: dict[str, Any]) -> None:
    connections[alias].close()
    connections[alias].settings_dict["OPTIONS"] = options
    outbox, seen = make_outbox(alias), []
    outbox.register("Placed", lambda event: seen.append(event.payload_json))
    try:
        with transaction.atomic(using=alias):
            outbox.write("Placed", 1)
            outbox.drain()
            outbox.write_all([EventEnvelope("Placed", payload_json=str(number)) for number in (2, 3)])
        outbox.drain()
    finally:
        connections[alias].close()
        if "pool" in options:
            connections[alias].close_pool()
    assert seen == ["1", "2", "3"]


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_the_workers_of_postgres_take_the_role_too(alias: str, make_outbox: Any) -> None:
    outbox, role = make_outbox(alias), f"aftercommit_{uuid4().hex[:12]}"
    with connections[alias].cursor() as cursor:
        cursor.execute(f"CREATE ROLE {role}")
    connections[alias].settings_dict["OPTIONS"] = {"assume_role": role}
    try:
        assert run(outbox._store.executor.fetch("SELECT current_user")) == [(role,)]
    finally:
        outbox.close()
        with connections[alias].cursor() as cursor:
            cursor.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("alias", ["mariadb"], indirect=True)
def test_what_pymysql_does_not_know_is_refused(alias: str, make_outbox: Any) -> None:
    connections[alias].settings_dict["OPTIONS"] = {"ssl_mode": "REQUIRED"}
    outbox = make_outbox(alias)
    with pytest.raises(InvalidOption, match="ssl_mode") as caught:
        outbox.stats()
    assert "target" in caught.value.fix


def test_nothing_else_of_the_package_knows_django() -> None:
    package = Path(aftercommit.__file__).parent
    rest = [path for path in package.rglob("*.py") if package / "django" not in path.parents]
    assert not [path for path in rest if "import django" in path.read_text() or "from django" in path.read_text()]


def test_the_app_can_be_imported_before_the_settings() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import sys, aftercommit.django; print('django.conf' in sys.modules)"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(aftercommit.__file__).parents[1])},
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "False\n", "")
