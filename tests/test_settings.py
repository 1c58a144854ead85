"""What the surroundings say of an outbox, and who wins when several do."""

from __future__ import annotations

import os
from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from aftercommit import AsyncOutbox, InvalidOption, Outbox, OutboxConfig
from aftercommit.config import OPTIONS
from aftercommit.settings import read_settings

#: A text for each kind of option that a text can say.
TEXTS = {"int": "8", "bool": "no", "timedelta": "90s", "str": "ledger", "RetryPolicy": "fixed"}


@pytest.fixture(autouse=True)
def nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("AFTERCOMMIT_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("kind", [Outbox, AsyncOutbox])
def test_keywords_win_over_the_environment_and_that_over_the_file(kind, tmp_path, monkeypatch) -> None:
    (tmp_path / "aftercommit.toml").write_text(
        'url = "sqlite:///file.db"\nworker_count = 2\nbatch_size = 3\nmax_attempts = 4\npoll_interval = "9s"'
    )
    monkeypatch.setenv("AFTERCOMMIT_BATCH_SIZE", "5")
    monkeypatch.setenv("AFTERCOMMIT_MAX_ATTEMPTS", "6")
    outbox = kind.configured(max_attempts=7)
    config = outbox.config
    assert (config.worker_count, config.batch_size, config.max_attempts) == (2, 5, 7)
    assert config.poll_interval == timedelta(seconds=9)
    assert config.lock_timeout == timedelta(seconds=30)
    assert "file.db" in repr(outbox)
    assert "other.db" in repr(kind.configured("sqlite:///other.db"))
    monkeypatch.setenv("AFTERCOMMIT_URL", "sqlite:///said.db")
    assert "said.db" in repr(kind.configured())


def test_a_plain_outbox_reads_nothing(tmp_path, monkeypatch) -> None:
    (tmp_path / "aftercommit.toml").write_text("worker_count = 2")
    monkeypatch.setenv("AFTERCOMMIT_BATCH_SIZE", "5")
    config = Outbox("sqlite://").config
    assert (config.worker_count, config.batch_size) == (4, 50)


def test_without_a_target_anywhere_nothing_is_made() -> None:
    with pytest.raises(InvalidOption, match="AFTERCOMMIT_URL"):
        Outbox.configured()


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_that_a_text_can_say_has_its_variable(name: str) -> None:
    (declared,) = (each for each in fields(OutboxConfig) if each.name == name)
    said = "continue" if name == "on_dead" else TEXTS.get(str(declared.type).partition(" ")[0], "x")
    if declared.default is False:
        said = "yes"
    environ = {f"AFTERCOMMIT_{name.upper()}": said}
    if OPTIONS[name].kind.from_text is None:
        with pytest.raises(InvalidOption, match=f"AFTERCOMMIT_{name.upper()}.*no text can say"):
            read_settings(environ=environ)
    else:
        settings = read_settings(environ=environ)
        assert settings.values[name].source == f"AFTERCOMMIT_{name.upper()}"
        assert getattr(OutboxConfig(**settings.options, **_with(name)), name) != getattr(OutboxConfig(), name)


def _with(name: str) -> dict[str, object]:
    """What an option cannot be alone with."""
    ordered = {"stop_on_first_failure", "on_dead", "serialize_keys"}
    return {"ordered": True} if name in ordered else {"stale_timeout": "1h"} if name == "heartbeat_interval" else {}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("WORKER_COUNT", "8", 8),
        ("HOT_PATH", "off", False),
        ("ORDERED", "TRUE", True),
        ("POLL_INTERVAL", "2.5", 2.5),
        ("UNROUTABLE_GRACE", "none", None),
        ("CREATE_SCHEMA", "1", True),
    ],
)
def test_texts_are_read_as_people_write_them(name: str, text: str, value: object) -> None:
    assert read_settings(environ={f"AFTERCOMMIT_{name}": text}).options == {name.lower(): value}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"AFTERCOMMIT_WORKER_COUT": "8"}, "AFTERCOMMIT_WORKER_COUT.*did you mean AFTERCOMMIT_WORKER_COUNT"),
        ({"AFTERCOMMIT_WORKER_COUNT": "many"}, "AFTERCOMMIT_WORKER_COUNT: worker_count is 'many'"),
        ({"AFTERCOMMIT_HOT_PATH": "perhaps"}, "AFTERCOMMIT_HOT_PATH"),
        ({"AFTERCOMMIT_POLL_INTERVAL": "soon"}, "AFTERCOMMIT_POLL_INTERVAL"),
        ({"AFTERCOMMIT_PROFILE": "staging"}, "profile 'staging'"),
        ({"AFTERCOMMIT_CONFIG": "nowhere.toml"}, "nowhere.toml cannot be read"),
    ],
)
def test_what_the_environment_says_wrongly_is_refused_with_its_name(environ, said) -> None:
    with pytest.raises(InvalidOption, match=f"(?s){said}"):
        read_settings(environ=environ)


def test_what_a_cluster_says_of_a_service_of_that_name_is_no_setting() -> None:
    service = {
        "AFTERCOMMIT_SERVICE_HOST": "10.0.0.1",
        "AFTERCOMMIT_PORT": "tcp://x",
        "AFTERCOMMIT_PORT_80_TCP_ADDR": "x",
    }
    assert read_settings(environ=service).values == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("worker_cuont = 2", "worker_cuont.*did you mean worker_count"),
        ("worker_count = 'many'", "aftercommit.toml: worker_count is 'many'"),
        ("worker_count = ", "no TOML"),
        ("url = 7", "url is a int"),
        ("metrics = 'x'", "metrics takes .* which no text can say"),
    ],
)
def test_what_the_file_says_wrongly_is_refused_with_its_place(text, said, tmp_path) -> None:
    (tmp_path / "aftercommit.toml").write_text(text)
    with pytest.raises(InvalidOption, match=f"(?s){said}") as refused:
        read_settings(environ={})
    assert str(tmp_path / "aftercommit.toml") in str(refused.value)


def test_the_nearest_file_counts_and_a_project_without_settings_is_passed(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text("[tool.aftercommit]\nworker_count = 1")
    (inner / "pyproject.toml").write_text("[project]\nname = 'x'")
    assert read_settings(environ={}, folder=inner).options == {"worker_count": 1}
    (tmp_path / "a" / "aftercommit.toml").write_text("worker_count = 2")
    assert read_settings(environ={}, folder=inner).options == {"worker_count": 2}
    assert read_settings(environ={}, folder=inner, file=tmp_path / "pyproject.toml").options == {"worker_count": 1}


def test_a_profile_is_laid_over_the_file(tmp_path: Path) -> None:
    (tmp_path / "aftercommit.toml").write_text(
        "worker_count = 1\nbatch_size = 2\nretry_policy = {policy = 'fixed', delay = '3s'}\n"
        "[profiles.staging]\nworker_count = 7"
    )
    settings = read_settings(environ={"AFTERCOMMIT_PROFILE": "staging"})
    assert (settings.options["worker_count"], settings.options["batch_size"]) == (7, 2)
    assert "profile staging" in settings.values["worker_count"].source
    assert str(OutboxConfig(**settings.options).retry_policy) == "Fixed(delay=3s)"
    with pytest.raises(InvalidOption, match="it has: staging"):
        read_settings(environ={}, profile="stagin")
