"""The ready-made ways to put an outbox together, as constructors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self, Unpack

from aftercommit.config import OutboxConfig, OutboxOptions, configure
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
    def _wired(cls, wiring: Wiring, target: Any, options: Mapping[str, Any]) -> Self:
        self = cls.__new__(cls)
        self._set_up(target, configure(wiring, options))
        return self

    @abstractmethod
    def _set_up(self, target: Any, config: OutboxConfig) -> None: ...
