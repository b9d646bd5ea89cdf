"""Methods of a client, made from the functions that build calls: each signature is written once."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from credit_ledger.call import Call, ListCall

if TYPE_CHECKING:
    from credit_ledger.async_client import AsyncClient, AsyncPages
    from credit_ledger.client import Client, Pages

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")


class Sent(Generic[P, T]):
    """A method of Client that sends a call and returns its answer."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build

    @overload
    def __get__(self, client: None, owner: type[Any]) -> "Sent[P, T]": ...
    @overload
    def __get__(self, client: "Client", owner: type[Any]) -> Callable[P, T]: ...
    def __get__(self, client: "Client | None", owner: type[Any]) -> "Sent[P, T] | Callable[P, T]":
        if client is None:
            return self

        @wraps(self.build)
        def send(*args: P.args, **kwargs: P.kwargs) -> T:
            return client.send(self.build(*args, **kwargs))

        return send


class Listed(Generic[P, Item]):
    """A method of Client that returns the items of all pages."""

    def __init__(self, build: Callable[P, ListCall[Item]]) -> None:
        self.build = build

    @overload
    def __get__(self, client: None, owner: type[Any]) -> "Listed[P, Item]": ...
    @overload
    def __get__(self, client: "Client", owner: type[Any]) -> "Callable[P, Pages[Item]]": ...
    def __get__(self, client: "Client | None", owner: type[Any]) -> "Listed[P, Item] | Callable[P, Pages[Item]]":
        if client is None:
            return self

        @wraps(self.build)
        def pages(*args: P.args, **kwargs: P.kwargs) -> "Pages[Item]":
            return client.pages(self.build(*args, **kwargs))

        return pages


class AsyncSent(Generic[P, T]):
    """A method of AsyncClient that sends a call and returns its answer."""

    def __init__(self, build: Callable[P, Call[T]]) -> None:
        self.build = build

    @overload
    def __get__(self, client: None, owner: type[Any]) -> "AsyncSent[P, T]": ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type[Any]) -> Callable[P, Awaitable[T]]: ...
    def __get__(self, client: "AsyncClient | None", owner: type[Any]) -> "AsyncSent[P, T] | Callable[P, Awaitable[T]]":
        if client is None:
            return self

        @wraps(self.build)
        async def send(*args: P.args, **kwargs: P.kwargs) -> T:
            return await client.send(self.build(*args, **kwargs))

        return send


class AsyncListed(Generic[P, Item]):
    """A method of AsyncClient that returns the items of all pages."""

    def __init__(self, build: Callable[P, ListCall[Item]]) -> None:
        self.build = build

    @overload
    def __get__(self, client: None, owner: type[Any]) -> "AsyncListed[P, Item]": ...
    @overload
    def __get__(self, client: "AsyncClient", owner: type[Any]) -> "Callable[P, AsyncPages[Item]]": ...
    def __get__(self, client: "AsyncClient | None", owner: type[Any]) -> "AsyncListed[P, Item] | Callable[P, AsyncPages[Item]]":
        if client is None:
            return self

        @wraps(self.build)
        def pages(*args: P.args, **kwargs: P.kwargs) -> "AsyncPages[Item]":
            return client.pages(self.build(*args, **kwargs))

        return pages
