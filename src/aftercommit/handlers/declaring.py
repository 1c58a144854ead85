"""Transactional handlers as type checkers see them: what such a declaration takes."""

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
