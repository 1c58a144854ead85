"""The ready-made ways to put an outbox together, as constructors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self, Unpack

from aftercommit.config import OutboxConfig, OutboxOptions, configure
from aftercommit.errors import InvalidOption
from aftercommit.options import Wiring


class Wired(ABC):
    """Made from a target and options. Each wiring refuses the options that make no sense in it."""

    @classmethod
    def single_node(cls, target: Any, **options: Unpack[OutboxOptions]) -> Self:
        """One process: hot path and poller."""
        return cls._wired(Wiring.SINGLE_NODE, target, options)

    @classmethod
    def multi_node(cls, target: Any, **options: Unpack[OutboxOptions]) -> Self:
        """Several processes on one database; what one cannot route is left to the others for ten minutes."""
        return cls._wired(Wiring.MULTI_NODE, target, options)

    @classmethod
    def ordered(cls, target: Any, **options: Unpack[OutboxOptions]) -> Self:
        """Events of one key in the order of writing, one at a time, over any number of processes."""
        return cls._wired(Wiring.ORDERED, target, options)

    @classmethod
    def writer_only(cls, target: Any, **options: Unpack[OutboxOptions]) -> Self:
        """Only writes, for programs whose events another one delivers. purge_retention then goes by age alone."""
        return cls._wired(Wiring.WRITER_ONLY, target, options)

    @classmethod
    def configured(cls, target: Any = None, **options: Unpack[OutboxOptions]) -> Self:
        """As the surroundings say: environment variables (`AFTERCOMMIT_URL`, `AFTERCOMMIT_WORKER_COUNT` …), then
        `aftercommit.toml` or `[tool.aftercommit]` of the nearest pyproject.toml. Keywords win over both."""
        from aftercommit.settings import read_settings  # noqa: PLC0415  (nobody else pays for what reads files)

        settings = read_settings()
        chosen = settings.url if target is None else target
        if chosen is None:
            raise InvalidOption(
                "no target was given, and neither AFTERCOMMIT_URL nor a configuration file names one",
                fix='set AFTERCOMMIT_URL=sqlite:///app.db, write url = "…" in aftercommit.toml, or pass the target',
            )
        return cls._wired(Wiring.CUSTOM, chosen, {**settings.options, **options})

    @classmethod
    def _wired(cls, wiring: Wiring, target: Any, options: Mapping[str, Any]) -> Self:
        self = cls.__new__(cls)
        self._set_up(target, configure(wiring, options))
        return self

    @abstractmethod
    def _set_up(self, target: Any, config: OutboxConfig) -> None: ...
