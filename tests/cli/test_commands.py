"""The commands that need no server, each for what it promises."""

from __future__ import annotations

import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

import aftercommit.cli.explain as explain
from aftercommit.cli.exits import Exit
from tests.cli.kit import Here, program, write_shop

ROOT = Path(__file__).parents[2]


def test_a_new_program_is_written_and_delivers(tmp_path: Path) -> None:
    """As the words that `init` ends with say it."""
    began = program("init", folder=tmp_path)
    assert (began.code, began.out) == (0, "aftercommit.toml\noutbox_app.py\n")
    assert (tmp_path / "outbox.db").is_file()
    assert "aftercommit run" in began.err
    assert program("send", "OrderPlaced", '{"total": 4200}', folder=tmp_path).code == 0
    done = program("run", "--drain", folder=tmp_path)
    assert (done.code, done.out) == (0, "receipt over 4200\n1 delivered, 0 retried, 0 deferred, 0 dead\n")


def test_files_that_are_there_are_overwritten_only_on_request(here: Here, tmp_path: Path) -> None:
    (tmp_path / "outbox_app.py").write_text("mine")
    refused = here("init")
    assert refused.code == Exit.USAGE
    assert "--force" in refused.err
    assert [path.name for path in tmp_path.iterdir()] == ["outbox_app.py"]
    assert here("init", "--force").code == 0
    assert (tmp_path / "outbox_app.py").read_text() != "mine"


def test_a_password_goes_into_no_file(here: Here, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aftercommit.cli.init._make_tables", lambda url: False)
    done = here("init", "--url", "postgresql://shop:canary@db/shop")
    assert done.code == 0
    assert "AFTERCOMMIT_URL" in done.err
    assert "migrate up" in done.err
    assert "canary" not in done.out + done.err + (tmp_path / "aftercommit.toml").read_text()


def test_a_code_is_explained_with_its_fix(here: Here) -> None:
    done = here("explain", "ac001")
    assert done.out.startswith("AC001 NotInTransaction\n")
    assert "Fix: " in done.out
    assert here("explain", "StoreBusy", "--json").json["code"] == "AC032"
    assert "did you mean AC031?" in here("explain", "AC0311").err


def test_a_check_of_the_doctor_is_explained_too(here: Here) -> None:
    assert "purge_retention" in here("explain", "AC106").out


def test_the_pages_that_are_explained_from_are_shipped() -> None:
    """In a checkout they are read where they are written; a wheel has them in the package."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    pages = {f"docs/{page}": f"aftercommit/cli/pages/{page}" for page in explain._ROWS}
    assert build["force-include"] == pages
    assert all((ROOT / page).is_file() for page in pages)


def test_every_error_has_its_explanation() -> None:
    from aftercommit import errors

    kinds = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.OutboxError)]
    assert {kind.code: kind.__name__ for kind in kinds}.items() <= {
        each.code: each.name for each in explain.explanations().values()
    }.items()


def test_every_setting_is_shown_with_its_source_and_no_password(here: Here, tmp_path: Path) -> None:
    (tmp_path / "aftercommit.toml").write_text('url = "postgresql://u:canary@db/x"\npoll_interval = "9s"\n')
    done = here("config", "show", "--json", AFTERCOMMIT_WORKER_COUNT="8")
    values = done.json["values"]
    assert values["worker_count"] == {"value": 8, "source": "AFTERCOMMIT_WORKER_COUNT"}
    assert values["poll_interval"] == {"value": "9s", "source": str(tmp_path / "aftercommit.toml")}
    assert values["batch_size"] == {"value": 50, "source": "default"}
    assert values["url"]["value"] == "postgresql://u:***@db/x"
    assert "canary" not in here("config", "show").out


def test_handlers_are_listed_with_their_events(here: Here, tmp_path: Path) -> None:
    write_shop(tmp_path)
    done = here("handlers", "shop:aio")
    assert done.out.splitlines()[1].split()[:2] == ["send_receipt", "OrderPlaced"]
    assert "shop.py:" in done.out


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_shell_gets_its_completion(shell: str, here: Here) -> None:
    done = here("completion", shell)
    assert done.code == 0
    assert "_AFTERCOMMIT_COMPLETE" in done.out


def test_a_shell_completes_commands(tmp_path: Path) -> None:
    variables = {"_AFTERCOMMIT_COMPLETE": "zsh_complete", "COMP_WORDS": "aftercommit he", "COMP_CWORD": "1"}
    done = program(folder=tmp_path, variables=variables)
    assert "healthcheck" in done.out.split("\n")


def test_the_demo_runs(tmp_path: Path) -> None:
    done = program("demo", "--fast", folder=tmp_path)
    assert done.code == 0, done.err
    assert "delivered" in done.out


class Probes(BaseHTTPRequestHandler):
    """A worker that lives and is not ready."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/livez" else 503)
        self.end_headers()
        self.wfile.write(b"as it is")

    def log_message(self, *_: object) -> None: ...


def test_a_worker_is_asked_for_its_health(here: Here) -> None:
    with HTTPServer(("127.0.0.1", 0), Probes) as server:
        address = f"127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        live, ready = (here("healthcheck", each, "--http", address) for each in ("live", "ready"))
        server.shutdown()
        thread.join()
    assert (live.code, live.out) == (0, "as it is\n")
    assert ready.code == Exit.PROBLEM
    gone = here("healthcheck", "live", "--http", address)
    assert gone.code == Exit.PROBLEM
    assert "does not answer" in gone.err


@pytest.mark.parametrize("address", ["9100x", "host:", "host:99999", "::1:9100"])
def test_what_is_no_address_is_refused(address: str, here: Here) -> None:
    assert here("healthcheck", "live", "--http", address).code == Exit.USAGE


def test_a_header_needs_a_value(here: Here, tmp_path: Path) -> None:
    write_shop(tmp_path)
    assert here("send", "--app", "shop:outbox", "A", "{}", "--header", "alone").code == Exit.USAGE
    done = here("send", "--app", "shop:outbox", "A", "{}", "--header", "a=b=c", "--key", "k", "--deliver-after", "1h")
    assert done.code == 0, done.err
