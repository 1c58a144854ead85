"""Every error has a code of its own, says what happened and what to do, and stands in the docs."""

from __future__ import annotations

import ast
import copy
import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import aftercommit
from aftercommit.errors import InvalidEvent, OutboxError
from aftercommit.events.outcome import RetryAfterError, Unavailable

PACKAGE = Path(aftercommit.__file__).parent
DOCS = Path(__file__).parents[2] / "docs" / "errors.md"
ROW = re.compile(r"\| (AC\d{3}) \| `(\w+)` \| (.+) \| (.+) \|")


def load_everything() -> None:
    """Errors may be defined anywhere in the package; an edge whose library is not installed is left out."""
    for module in pkgutil.walk_packages([str(PACKAGE)], "aftercommit."):
        # What is behind Django's door can be imported only by a program that has settings, and defines no errors.
        if module.name.rpartition(".")[2] == "__main__" or module.name.startswith("aftercommit.django."):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            if (error.name or "").startswith("aftercommit"):
                raise


def family(root: type[OutboxError]) -> Iterator[type[OutboxError]]:
    yield root
    for child in root.__subclasses__():
        yield from family(child)


load_everything()
ERRORS = sorted(
    {each for each in family(OutboxError) if each.__module__.startswith("aftercommit")}, key=lambda each: each.code
)
every_error = pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)


def test_the_errors_were_found():
    assert len(ERRORS) >= 23
    assert {OutboxError, InvalidEvent, RetryAfterError} < set(ERRORS)


def test_every_error_has_a_code_of_its_own():
    codes = [each.__dict__.get("code") for each in ERRORS]

    assert None not in codes, "a subclass that takes its parent's code cannot be told from it"
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"AC\d{3}", code) for code in codes)


def test_every_error_stands_in_the_docs_with_its_meaning_and_a_fix():
    rows = [ROW.fullmatch(line) for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| AC")]

    assert None not in rows, "a row of the table has another form"
    assert {row[1]: row[2] for row in rows} == {each.code: each.__name__ for each in ERRORS}
    assert len(rows) == len(ERRORS)
    assert all(row[3].strip() and row[4].strip() for row in rows)


@every_error
def test_every_error_is_public_and_says_what_it_is(kind):
    assert getattr(aftercommit, kind.__name__) is kind
    assert len(kind.__doc__ or "") > 20


def test_every_error_that_the_package_raises_says_what_to_do():
    """An error without a fix is a dead end. Two are words of handlers to the outbox, which needs none."""
    names = {each.__name__ for each in ERRORS} - {"RetryAfterError", "Unavailable"}
    calls = [
        (path.relative_to(PACKAGE), node)
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names
    ]

    assert len(calls) > 30, "the search finds nothing"
    without = [f"{path}:{node.lineno}" for path, node in calls if not any(word.arg == "fix" for word in node.keywords)]
    assert without == []


def test_the_text_has_code_message_and_fix():
    error = InvalidEvent("it is wrong", fix="make it right")

    assert str(error) == "[AC010] it is wrong\n  Fix: make it right"
    assert (error.message, error.fix, error.args) == ("it is wrong", "make it right", ("it is wrong",))
    assert str(InvalidEvent("it is wrong")) == "[AC010] it is wrong"


@every_error
def test_errors_survive_a_copy_and_a_process_border(kind):
    special = {RetryAfterError: ("5s", "later"), Unavailable: ("the bank", "5s")}
    error = kind(*special[kind]) if kind in special else kind("it is wrong", fix="make it right")

    for twin in (copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error))):  # noqa: S301 - ours
        assert type(twin) is kind
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("NotInTransaction", RuntimeError),
        ("InvalidName", ValueError),
        ("InvalidPayload", ValueError),
        ("PayloadNotText", ValueError),
        ("InvalidOption", ValueError),
        ("UnsupportedTransaction", TypeError),
        ("InvalidListener", TypeError),
    ],
)
def test_errors_are_also_what_python_would_have_raised(name, builtin):
    assert issubclass(getattr(aftercommit, name), builtin)


def test_one_except_takes_all_that_is_wrong_with_an_event():
    names = ["InvalidName", "InvalidPayload", "PayloadTooLarge", "InvalidHeaders", "InvalidSchedule"]

    assert all(issubclass(getattr(aftercommit, name), InvalidEvent) for name in names)
