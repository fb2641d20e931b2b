"""A value that an object computes at the first access, and keeps."""

from collections.abc import Callable
from typing import Generic, TypeVar, overload

S = TypeVar("S")
T = TypeVar("T")


def cached_property(work_out: "Callable[[S], T]") -> "_CachedProperty[S, T]":
    """`functools.cached_property` without a lock, as in Python 3.12 and later.

    In Python 3.11 it has one lock for each attribute of a class, which all objects share. Two threads with different
    objects wait for each other, and deadlock if one holds a lock that the other's computation needs. Threads that share
    an object may both compute the value; the last one stays.
    """
    return _CachedProperty(work_out)


class _CachedProperty(Generic[S, T]):
    """Has no `__set__`, so that the value in the object's own `__dict__` takes precedence."""

    def __init__(self, work_out: Callable[[S], T]) -> None:
        self.__doc__ = work_out.__doc__
        self._work_out = work_out
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> "_CachedProperty[S, T]": ...
    @overload
    def __get__(self, instance: S, owner: type) -> T: ...
    def __get__(self, instance: S | None, owner: type) -> "T | _CachedProperty[S, T]":
        if instance is None:
            return self
        found = self._work_out(instance)
        vars(instance)[self._name] = found
        return found
