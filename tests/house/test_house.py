"""The house as a whole: what may not be in it, and what importing it costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import aftercommit

PACKAGE = Path(aftercommit.__file__).parent
#: The text of every module, by its path in the package. A test looks at all of them, and names those that are wrong.
SOURCES = {path.relative_to(PACKAGE).as_posix(): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}


def with_words(words: str, texts: dict[str, str]) -> list[str]:
    return [name for name, text in texts.items() if re.search(words, text, re.MULTILINE)]


def test_nothing_is_unpickled_evaluated_or_imported_by_name() -> None:
    """A row must never be able to choose what code runs."""
    texts = dict(SOURCES)
    # They load their names from the table of their modules, and nothing else.
    for file, place in (("__init__.py", "_HOME_OF[name]"), ("relays/__init__.py", 'f"{__name__}.{_HOMES[name]}"')):
        for allowed in ("from importlib import import_module\n", f"getattr(import_module({place}), name)\n"):
            assert texts[file].count(allowed) == 1
            texts[file] = texts[file].replace(allowed, "")
    # For whom a person named on the command line, and no row.
    texts["cli/importing.py"] = re.sub(r"\bimport_module\b", "", texts["cli/importing.py"])
    words = r"\b(pickle|marshal|shelve|import_module|__import__)\b|(?<![\w.])(eval|exec)\("
    assert with_words(words, texts) == []
    assert with_words(words, SOURCES) == ["__init__.py", "cli/importing.py", "relays/__init__.py"]


def test_a_file_has_one_noun() -> None:
    assert {name: lines for name, text in SOURCES.items() if (lines := len(text.splitlines())) > 320} == {}


def test_pytest_is_for_the_room_of_tests_alone() -> None:
    """Who uses the outbox need not have it."""
    found = with_words(r"^\s*(import|from) (_?pytest|aftercommit\.testing)\b", SOURCES)
    assert [name for name in found if not name.startswith("testing/") and name != "pytest_plugin.py"] == []


def test_all_is_logged_through_the_one_place_that_is_guarded() -> None:
    """What the program's own logging raises must break nothing of ours. The demo shows what is logged, and the command
    line sets up where it goes."""
    found = with_words(r"^\s*(import|from) logging\b", SOURCES)
    assert [name for name in found if not name.startswith("demo/")] == ["cli/logs.py", "events/log.py"]


#: Where a database may be called by its name.
_KNOWS_DATABASES = (
    "stores/",
    "demo/",
    "django/databases.py",  # from Django's word for a database to its store
    "transactions/sqlalchemy_table.py",  # SQLAlchemy's types for the columns of each database
    "transactions/sqlalchemy_schema.py",
    "testing/joined.py",  # how the transaction of a test begins, and where tables can be made in it
)

#: A name of a database, or a text with a word that only one of them understands.
_OF_ONE_DATABASE = re.compile(
    r"(sqlite|postgres(ql)?|mysql|mariadb|mssql|sql ?server)"
    r"|.*\b(PRAGMA|pg_\w+|advisory\w*|JSON_TABLE|OPENJSON|unnest)\b.*",
    re.IGNORECASE | re.DOTALL,
)


def test_only_stores_know_databases_by_name() -> None:
    """Everybody else asks what a store can do. Texts for people may name whatever they like."""
    others = {name: text for name, text in SOURCES.items() if not name.startswith(_KNOWS_DATABASES)}
    found = {name: words for name, text in others.items() if (words := _words_of_one_database(text))}
    assert found == {}
    assert _words_of_one_database(SOURCES["django/databases.py"])


def _words_of_one_database(source: str) -> list[str]:
    tree = ast.parse(source)
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [each.value for each in strings if id(each) not in told and _OF_ONE_DATABASE.fullmatch(each.value)]


def test_the_table_of_the_public_names_is_complete() -> None:
    assert sorted(aftercommit._HOME_OF) == sorted(aftercommit.__all__)
    assert all(home.startswith("aftercommit.") for home in aftercommit._HOME_OF.values())


def test_type_checkers_see_the_names_where_the_table_has_them() -> None:
    seen = next(node for node in ast.parse((PACKAGE / "__init__.py").read_text()).body if isinstance(node, ast.If))
    imports = [node for node in seen.body if isinstance(node, ast.ImportFrom)]
    assert {name.name: node.module for node in imports for name in node.names} == aftercommit._HOME_OF


def test_a_public_name_is_the_object_of_its_module() -> None:
    for name, home in aftercommit._HOME_OF.items():
        assert getattr(aftercommit, name) is getattr(import_module(home), name), name


def test_names_that_are_not_loaded_yet_are_listed_and_starred() -> None:
    script = (
        "import aftercommit; listed = dir(aftercommit); scope = {}; exec('from aftercommit import *', scope);"
        "print({*aftercommit.__all__} <= {*listed}, {*aftercommit.__all__} <= {*scope})"
    )
    assert _run(script) == ["True", "True"]


def test_a_name_that_is_not_there_is_refused_as_ever() -> None:
    with pytest.raises(AttributeError, match="module 'aftercommit' has no attribute 'Otubox'"):
        aftercommit.Otubox  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Otubox' from 'aftercommit'"):
        from aftercommit import Otubox  # noqa: F401


#: The last is loaded by msgspec where it is installed.
_THEIRS = {"mmh3", "msgspec", "typing_extensions"}


def test_importing_it_loads_nothing_of_it() -> None:
    """A program pays for what it uses, when it uses it (P14)."""
    loaded = _loaded_by("import aftercommit")
    assert {name for name in loaded if name.startswith("aftercommit")} == {"aftercommit"}
    assert _third(loaded) == set()
    assert len(loaded) <= 10, sorted(loaded)


#: Rooms and modules that a program in threads over SQLite has no use for.
_ELSEWHERE = re.compile(
    r"aftercommit\.(async_outbox|alembic|demo|django|testing|runtime\.(aio|portal)|stores\.(postgres|mysql|sqlserver))\b"
    r"|aftercommit\.(stores\.sql\.aio|transactions\.sqlalchemy)"
)


def test_an_outbox_on_sqlite_loads_no_event_loop_no_other_store_and_no_third_package() -> None:
    """Nor what only a misspelt option or a store of another package needs."""
    loaded = _loaded_by("from aftercommit import Outbox; Outbox('sqlite://')")
    assert _third(loaded) <= _THEIRS
    assert not loaded & {"asyncio", "difflib", "email", "importlib.metadata", "json"}
    assert not [name for name in loaded if _ELSEWHERE.match(name)]


#: What only a started outbox needs, or one on SQLite, or whoever asks for a diagnosis.
_WHEN_USED = re.compile(
    r"aftercommit\.(engine|assembly|spans|ordering|delivery\.(?!agenda|leases)|polling\.(poller|manual|due|trigger)"
    r"|stores\.(sql\b|sqlite\.(?!write_lock))|(effects|settings|relays|observers|inbox|tail|cli|web)\b)"
)

#: What ours could bring along, and has no need of. Much of it is dear: a compiler, archives, a parser of addresses.
_DEAR = {
    *("bz2", "fnmatch", "importlib.resources", "ipaddress", "lzma", "pathlib", "random", "shutil", "socket"),
    *("subprocess", "tempfile", "urllib", "zipfile"),
}


def test_the_class_of_an_outbox_loads_no_engine_no_store_and_no_driver() -> None:
    loaded = _loaded_by("from aftercommit import Outbox")
    assert _third(loaded) <= _THEIRS
    assert not loaded & {*_DEAR, "asyncio", "sqlite3"}
    assert not [name for name in loaded if _ELSEWHERE.match(name) or _WHEN_USED.match(name)]


def test_an_outbox_that_writes_and_delivers_loads_what_it_uses(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'outbox.db'}"
    loaded = _loaded_by(
        f"from aftercommit import Outbox; outbox = Outbox({url!r}).register('Placed', id);"
        "outbox.start(); tx = outbox.begin(); outbox.write('Placed', {}, tx=tx); tx.commit(); outbox.close()"
    )
    assert _third(loaded) <= _THEIRS
    assert not loaded & {*_DEAR, "asyncio"}
    assert not [name for name in loaded if _ELSEWHERE.match(name)]
    assert not loaded & {f"aftercommit.stores.{name}.diagnosis" for name in ("sql", "sqlite")}


#: What is left: options, whose fields carry what is said of them, and two that compute a field of their own.
_COMPILED = {"OutboxConfig", "Pool", "Statement"}


def test_hardly_a_class_is_compiled_by_every_program_that_starts() -> None:
    """`dataclass` writes and compiles functions for each class, a millisecond for a large one; a Struct needs none."""
    compiled = _run(
        "import dataclasses, functools; real = dataclasses._process_class; names = [];"
        "dataclasses._process_class = lambda cls, *rest: names.append(cls.__name__) or real(cls, *rest);"
        "from aftercommit import Outbox; outbox = Outbox('sqlite://'); outbox.start(); outbox.close(); print(*names)"
    )
    assert set(compiled) <= _COMPILED


def test_importing_it_has_no_effects(tmp_path: Path) -> None:
    script = (
        "import threading, aftercommit; o = aftercommit.Outbox('sqlite:///here.db'); print(threading.active_count())"
    )
    assert _run(script, cwd=tmp_path) == ["1"]
    assert list(tmp_path.iterdir()) == []


def _loaded_by(statements: str) -> set[str]:
    """The modules that a fresh interpreter loads for them."""
    return set(_run(f"import sys; before = set(sys.modules); {statements}; print(*set(sys.modules) - before)"))


def _third(loaded: set[str]) -> set[str]:
    """The packages that are neither ours nor Python's."""
    return {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"aftercommit"}


def _run(script: str, cwd: Path | None = None) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True, timeout=60, cwd=cwd
    )
    return done.stdout.split()
