"""The HTTP interface of a process: a bounded server, its gates, and an API page that needs no network."""

from collections.abc import Callable
from typing import TypeAlias

from shared.web.docs import docs_page
from shared.web.requests import JSON, TooLarge, body
from shared.web.server import Server, server

ServerFactory: TypeAlias = Callable[..., Server]  # called as `server` is

__all__ = ["JSON", "Server", "ServerFactory", "TooLarge", "body", "docs_page", "server"]
