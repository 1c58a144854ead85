"""What `handler(route, …)` gives, for type checkers: decorators that know what their function has to take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, overload

from aftercommit.events.context import EventMetadata
from aftercommit.handlers.handler import Handler


class RunsStatements(Protocol):
    """A transaction, whosever it is."""

    @property
    def execute(self) -> Any: ...


T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
Given = TypeVar("Given")
Tx = TypeVar("Tx", bound=RunsStatements)


class Declares(Protocol[Given]):
    """A decorator for functions and methods that take this payload."""

    @overload
    def __call__(self, function: Callable[[Given], R], /) -> Handler[Given, [Given], R]: ...
    @overload
    def __call__(
        self, function: Callable[[Given, EventMetadata], R], /
    ) -> Handler[Given, [Given, EventMetadata], R]: ...
    @overload
    def __call__(self, function: Callable[[S, Given], R], /) -> Handler[Given, [S, Given], R]: ...
    @overload
    def __call__(
        self, function: Callable[[S, Given, EventMetadata], R], /
    ) -> Handler[Given, [S, Given, EventMetadata], R]: ...


class DeclaresAny(Protocol):
    """A decorator for functions and methods that say by their annotation which payload they take."""

    @overload
    def __call__(self, function: Callable[[T], R], /) -> Handler[T, [T], R]: ...
    @overload
    def __call__(self, function: Callable[[T, EventMetadata], R], /) -> Handler[T, [T, EventMetadata], R]: ...
    @overload
    def __call__(self, function: Callable[[S, T], R], /) -> Handler[T, [S, T], R]: ...
    @overload
    def __call__(self, function: Callable[[S, T, EventMetadata], R], /) -> Handler[T, [S, T, EventMetadata], R]: ...


class DeclaresBatch(Protocol[Given]):
    """A decorator for functions and methods that take lists of this payload."""

    @overload
    def __call__(self, function: Callable[[list[Given]], R], /) -> Handler[Given, [list[Given]], R]: ...
    @overload
    def __call__(
        self, function: Callable[[list[Given], list[EventMetadata]], R], /
    ) -> Handler[Given, [list[Given], list[EventMetadata]], R]: ...
    @overload
    def __call__(self, function: Callable[[S, list[Given]], R], /) -> Handler[Given, [S, list[Given]], R]: ...
    @overload
    def __call__(
        self, function: Callable[[S, list[Given], list[EventMetadata]], R], /
    ) -> Handler[Given, [S, list[Given], list[EventMetadata]], R]: ...


class DeclaresAnyBatch(Protocol):
    """A decorator for functions and methods that say by their annotation of which payload they take lists."""

    @overload
    def __call__(self, function: Callable[[list[T]], R], /) -> Handler[T, [list[T]], R]: ...
    @overload
    def __call__(
        self, function: Callable[[list[T], list[EventMetadata]], R], /
    ) -> Handler[T, [list[T], list[EventMetadata]], R]: ...
    @overload
    def __call__(self, function: Callable[[S, list[T]], R], /) -> Handler[T, [S, list[T]], R]: ...
    @overload
    def __call__(
        self, function: Callable[[S, list[T], list[EventMetadata]], R], /
    ) -> Handler[T, [S, list[T], list[EventMetadata]], R]: ...


class DeclaresTransactional(Protocol[Given]):
    """A decorator for transactional functions and methods that take this payload."""

    @overload
    def __call__(self, function: Callable[[Given], R], /) -> Handler[Given, [Given], R]: ...
    @overload
    def __call__(self, function: Callable[[Given, Tx], R], /) -> Handler[Given, [Given, Tx], R]: ...
    @overload
    def __call__(
        self, function: Callable[[Given, Tx, EventMetadata], R], /
    ) -> Handler[Given, [Given, Tx, EventMetadata], R]: ...
    @overload
    def __call__(
        self, function: Callable[[Given, EventMetadata, Tx], R], /
    ) -> Handler[Given, [Given, EventMetadata, Tx], R]: ...
    @overload
    def __call__(self, function: Callable[[S, Given, Tx], R], /) -> Handler[Given, [S, Given, Tx], R]: ...
    @overload
    def __call__(
        self, function: Callable[[S, Given, Tx, EventMetadata], R], /
    ) -> Handler[Given, [S, Given, Tx, EventMetadata], R]: ...


class DeclaresAnyTransactional(Protocol):
    """The same, for functions and methods that say by their annotation which payload they take."""

    @overload
    def __call__(self, function: Callable[[T], R], /) -> Handler[T, [T], R]: ...
    @overload
    def __call__(self, function: Callable[[T, Tx], R], /) -> Handler[T, [T, Tx], R]: ...
    @overload
    def __call__(self, function: Callable[[T, Tx, EventMetadata], R], /) -> Handler[T, [T, Tx, EventMetadata], R]: ...
    @overload
    def __call__(self, function: Callable[[T, EventMetadata, Tx], R], /) -> Handler[T, [T, EventMetadata, Tx], R]: ...
    @overload
    def __call__(self, function: Callable[[S, T, Tx], R], /) -> Handler[T, [S, T, Tx], R]: ...
    @overload
    def __call__(
        self, function: Callable[[S, T, Tx, EventMetadata], R], /
    ) -> Handler[T, [S, T, Tx, EventMetadata], R]: ...
