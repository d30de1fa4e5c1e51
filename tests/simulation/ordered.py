"""A set that keeps its items in the order of insertion."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["OrderedSet"]

T = TypeVar("T")


class OrderedSet(Generic[T]):
    """A set with only the methods that the patched modules of the library use."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._items = dict.fromkeys(items)

    def add(self, item: T) -> None:
        self._items[item] = None

    def discard(self, item: T) -> None:
        self._items.pop(item, None)

    def remove(self, item: T) -> None:
        del self._items[item]

    def update(self, items: Iterable[T]) -> None:
        self._items.update(dict.fromkeys(items))

    def clear(self) -> None:
        self._items.clear()

    def isdisjoint(self, items: Iterable[T]) -> bool:
        return not any(item in self._items for item in items)

    def __eq__(self, other: object) -> bool:
        return set(self._items) == (set(other) if isinstance(other, OrderedSet) else other)

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
