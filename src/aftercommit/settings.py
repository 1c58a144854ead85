"""What the surroundings of a program say of its outbox: environment variables, and a configuration file.

Nothing is read unless it is asked for: by `Outbox.configured()` and by the command line. `Outbox(…)` reads nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from aftercommit.config import OPTIONS
from aftercommit.errors import InvalidOption, did_you_mean
from aftercommit.events.redact import redact
from aftercommit.options import Option

#: How the names of environment variables begin.
PREFIX: Final = "AFTERCOMMIT_"

#: The file that holds settings alone; in `pyproject.toml` they are the table `[tool.aftercommit]`.
FILE: Final = "aftercommit.toml"
_PROJECT: Final = "pyproject.toml"

#: What is no option of an outbox: where its database is, or the outbox itself as `module:attribute`.
_PLACES: Final = ("url", "app")
#: What Kubernetes tells every pod of a service that is called aftercommit; nobody has set these.
_OF_A_SERVICE: Final = re.compile(rf"{PREFIX}(SERVICE_(HOST|PORT\w*)|PORT(_\d+_\w+)?)")
#: What decides which settings are read.
_READING: Final = (f"{PREFIX}CONFIG", f"{PREFIX}PROFILE")


@dataclass(frozen=True, slots=True)
class Setting:
    """A value, and who says so."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Settings:
    """What the surroundings say, each value with its source. The environment wins over the file."""

    values: Mapping[str, Setting] = field(default_factory=dict)
    #: The file that was read.
    file: Path | None = None
    profile: str | None = None

    @property
    def url(self) -> str | None:
        return self._place("url")

    @property
    def app(self) -> str | None:
        """An outbox, or a function that makes one, as `module:attribute`: for the command line."""
        return self._place("app")

    @property
    def options(self) -> dict[str, Any]:
        """The keywords of an outbox."""
        return {name: each.value for name, each in self.values.items() if name in OPTIONS}

    def _place(self, name: str) -> str | None:
        return self.values[name].value if name in self.values else None


def read_settings(
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    file: str | os.PathLike[str] | None = None,
    profile: str | None = None,
) -> Settings:
    """Read the environment, and the file: the one that is named, else the nearest from this folder upwards.

    Every value is checked, and an unknown name is refused, with the place that has it.
    """
    environ = os.environ if environ is None else environ
    said = _from_environment(environ)
    chosen = profile or environ.get(f"{PREFIX}PROFILE") or None
    named = file or environ.get(f"{PREFIX}CONFIG") or None
    path = _nearest(Path.cwd() if folder is None else folder) if named is None else Path(named)
    kept = {} if path is None else _from_file(path, chosen)
    if chosen is not None and path is None:
        raise InvalidOption(
            f"the profile {chosen!r} was asked for, and there is no {FILE}", fix=f"write [profiles.{chosen}] in {FILE}"
        )
    return Settings({**kept, **said}, path, chosen)


# ---------------------------------------------------------------- the environment


def _from_environment(environ: Mapping[str, str]) -> dict[str, Setting]:
    known = {f"{PREFIX}{name.upper()}": name for name in (*_PLACES, *OPTIONS)}
    found = {}
    for variable, text in sorted(environ.items()):
        if not variable.startswith(PREFIX) or variable in _READING or _OF_A_SERVICE.fullmatch(variable):
            continue
        if variable not in known:
            raise InvalidOption(
                f"the environment variable {variable} is no setting of aftercommit",
                fix=did_you_mean(variable, known),
            )
        name = known[variable]
        if text:  # empty is how many a tool says that there is none
            found[name] = Setting(_checked(name, text, variable), variable)
    return found


# ---------------------------------------------------------------- the file


def _nearest(folder: Path) -> Path | None:
    for each in (folder, *folder.parents):
        if (each / FILE).is_file():
            return each / FILE
        project = each / _PROJECT
        if project.is_file() and _table_of(project):
            return project
    return None


def _from_file(path: Path, profile: str | None) -> dict[str, Setting]:
    table = _table_of(path)
    profiles = table.pop("profiles", {})
    found = dict(_from_table(table, str(path)))
    if profile is not None:
        if not isinstance(profiles, Mapping) or not isinstance(profiles.get(profile), Mapping):
            known = sorted(profiles) if isinstance(profiles, Mapping) else []
            raise InvalidOption(
                f"{path} has no profile {profile!r}; it has: {', '.join(known) or 'none'}",
                fix="name one of those, or write one" if known else f"write [profiles.{profile}]",
            )
        found |= _from_table(profiles[profile], f"{path}, profile {profile}")
    return found


def _table_of(path: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415  (only a program that has a file pays for its parser)

    try:
        text = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidOption(f"{path} cannot be read: {error.strerror}", fix="name a file that is there") from error
    except ValueError as error:  # what is no TOML, or no text
        raise InvalidOption(f"{path} is no TOML: {error}", fix="mend that line") from error
    if path.name == _PROJECT:
        tool = text.get("tool", {})
        text = tool.get("aftercommit", {}) if isinstance(tool, Mapping) else {}
    if not isinstance(text, dict):
        raise InvalidOption(f"{path}: tool.aftercommit is {text!r}", fix="write it as a table: [tool.aftercommit]")
    return text


def _from_table(table: Mapping[str, Any], source: str) -> Iterator[tuple[str, Setting]]:
    for name, value in table.items():
        if name not in OPTIONS and name not in _PLACES:
            raise InvalidOption(
                f"{source} has {name!r}, which is no setting of aftercommit",
                fix=did_you_mean(name, [*OPTIONS, *_PLACES, "profiles"]),
            )
        yield name, Setting(_checked(name, value, source), source)


# ---------------------------------------------------------------- values


def _checked(name: str, value: Any, source: str) -> Any:
    if name in _PLACES:
        if not isinstance(value, str):
            raise InvalidOption(f"{source}: {name} is a {type(value).__name__}", fix=f"write {name} as a text")
        return value
    option = OPTIONS[name]
    if option.kind.from_text is None:
        raise InvalidOption(
            f"{source}: {name} takes {option.kind.words}, which no text can say",
            fix=f"pass it in code: Outbox.configured({name}=…)",
        )
    return _read(name, value, option, source)


def _read(name: str, value: Any, option: Option, source: str) -> Any:
    said = option.kind.from_text(value) if isinstance(value, str) and option.kind.from_text else value
    try:
        option.kind.check(name, said)
    except InvalidOption as error:
        raise InvalidOption(redact(f"{source}: {error.message}"), fix=error.fix) from error
    return said
