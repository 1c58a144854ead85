"""Old versions of a payload made new: one step per version, over plain data."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from aftercommit.errors import InvalidPayloadType, UndecodablePayload
from aftercommit.events.names import described
from aftercommit.events.redact import error_text

#: Takes the plain data of one version (for JSON: dicts, lists, strings, numbers) and returns that of the next.
Upcaster = Callable[[Any], Any]


class Upcasters:
    """The steps of all classes of one outbox."""

    def __init__(self) -> None:
        self._steps: dict[tuple[type, int], Upcaster] = {}

    def add(self, kind: type, from_version: Any, to_version: int, step: Any) -> None:
        """A step from one version to the next; `to_version` is what the class is at."""
        name = kind.__name__
        if isinstance(from_version, bool) or not isinstance(from_version, int) or from_version < 1:
            raise InvalidPayloadType(
                f"an upcaster of {name} is from version {from_version!r}", fix="pass from_version as an int from 1 on"
            )
        if from_version >= to_version:
            raise InvalidPayloadType(
                f"{name} is at version {to_version}, so an upcaster from version {from_version} would never run",
                fix=f"@outbox_event(version={from_version + 1}) on {name}",
            )
        if (kind, from_version) in self._steps:
            raise InvalidPayloadType(
                f"{name} has an upcaster from version {from_version} already: "
                f"{described(self._steps[kind, from_version])}",
                fix="keep one of them",
            )
        if not callable(step) or any(
            ask(step) for ask in (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)
        ):
            raise InvalidPayloadType(
                f"the upcaster {described(step)} of {name} is no plain function",
                fix="def upcaster(data): …; return data",
            )
        self._steps[kind, from_version] = step

    def apply(self, kind: type, data: Any, *, from_version: int, to_version: int) -> Any:
        """The data as the class has it now, by every step on the way."""
        for version in range(from_version, to_version):
            step = self._steps.get((kind, version))
            if step is None:
                raise UndecodablePayload(
                    f"{kind.__name__} is at version {to_version}, and no upcaster leads on from version {version}",
                    fix=f"@outbox.upcast({kind.__name__}, from_version={version}), then replay the event",
                )
            what = f"the upcaster {described(step)} of {kind.__name__} from version {version}"
            try:
                data = step(data)
            except Exception as error:
                fix = "mend the upcaster, then replay the event"
                raise UndecodablePayload(f"{what} failed: {error_text(error)}", fix=fix) from error
            if data is None:
                raise UndecodablePayload(f"{what} returned None", fix="return the data, then replay the event")
        return data
