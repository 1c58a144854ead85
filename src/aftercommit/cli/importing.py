"""The one place that imports by a name: a command's own module, and the outbox that the caller of a command named."""

from __future__ import annotations

import sys
from importlib import import_module, util
from pathlib import Path
from types import ModuleType
from typing import Any

from aftercommit.errors import CannotStart, OutboxError, closest
from aftercommit.events.redact import error_text


def load_command(module: str, attribute: str) -> Any:
    """A command of ours, by the table of commands."""
    return getattr(import_module(f"aftercommit.cli.{module}"), attribute)


def load_target(path: str) -> Any:
    """What `module:attribute` or `file.py:attribute` names. Modules are looked for in the working directory too."""
    place, colon, attribute = path.rpartition(":")
    if not colon or not place or not attribute:
        raise CannotStart(f"{path!r} is no target", fix="write module:attribute, such as shop:outbox or shop.py:outbox")
    module = _module(place)
    found: Any = module
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise _missing(module, place, attribute) from None
    return found


def _module(place: str) -> ModuleType:
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return _from_file(Path(place)) if place.endswith(".py") else import_module(place)
    except OutboxError:
        raise  # it has been told what is wrong, and how to mend it
    except ModuleNotFoundError as error:
        # A module that the target itself imports is another matter than one that is not there.
        if error.name and (place == error.name or place.startswith(f"{error.name}.")):
            raise CannotStart(
                f"there is no module {error.name!r} in {here} or where Python looks for modules",
                fix="run this in the folder that has it, or name the file: path/to/module.py:outbox",
            ) from error
        raise _broken(place, error) from error
    except (Exception, SystemExit) as error:  # whatever the module does when it is loaded
        raise _broken(place, error) from error


def _from_file(path: Path) -> ModuleType:
    """Under the name that it has as a module of its folder, which other modules of the program know it by."""
    if not path.is_file():
        raise CannotStart(f"there is no file {path}", fix="give its path, from the folder in which you run this")
    folder, name = str(path.resolve().parent), path.stem
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:  # never so for a name that ends in .py
        raise CannotStart(f"{path} is no module", fix="name a file of Python source")
    module = sys.modules[name] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _broken(place: str, error: BaseException) -> CannotStart:
    return CannotStart(f"{place} could not be loaded: {error_text(error)}", fix="-vv shows where it happened")


def _missing(module: ModuleType, place: str, attribute: str) -> CannotStart:
    names = [name for name, value in vars(module).items() if not name.startswith("_") and _may_be_meant(value, module)]
    near = closest(attribute, names)
    advice = f"did you mean {place}:{near}?" if near else "name an outbox, or a function that makes one"
    return CannotStart(
        f"module {place!r} has no attribute {attribute!r}; it defines: {', '.join(sorted(names)) or 'nothing'}",
        fix=advice,
    )


def _may_be_meant(value: object, module: ModuleType) -> bool:
    """Its own functions and objects, and not what it has imported."""
    if isinstance(value, ModuleType):
        return False
    home = getattr(value, "__module__", module.__name__)
    return not callable(value) or home == module.__name__
