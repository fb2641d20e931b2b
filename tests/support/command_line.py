"""The command line as a user has it."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias


class Done(NamedTuple):
    """Exit status, and what was printed to stdout and stderr."""

    status: int
    out: str
    err: str


Run: TypeAlias = Callable[..., Done]
