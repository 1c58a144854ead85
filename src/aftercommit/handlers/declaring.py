"""What `handler(route, …)` gives, for type checkers: decorators that know what their function has to take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, overload

from aftercommit.events.context import EventMetadata
from aftercommit.handlers.handler import Handler

T = TypeVar("T")
S = TypeVar("S")
R = TypeVar("R")
Given = TypeVar("Given")


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
