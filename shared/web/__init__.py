"""The HTTP interface of a process: a bounded server, its gates, and an API page that needs no network."""

from shared.web.docs import docs_page
from shared.web.requests import TooLarge, body
from shared.web.server import Server, server

__all__ = ["Server", "TooLarge", "body", "docs_page", "server"]
