"""What a request asks for: its path as group, version, resource, name; its query as typed options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from deploy.local.apiserver import status


@dataclass(frozen=True, slots=True)
class Target:
    """The addressed API object or collection, as its path says."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request, its body read."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[bytes, bytes]
    body: bytes

    def header(self, name: bytes) -> str:
        return self.headers.get(name, b"").decode("latin-1")

    @property
    def content_type(self) -> str:
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def flag(self, name: str) -> bool:
        """A boolean query parameter; present without a value means true."""
        return self.query.get(name, "false").lower() in ("", "1", "true", "t")

    def number(self, name: str, default: int = 0) -> int:
        text = self.query.get(name, "")
        if not text:
            return default
        try:
            return int(text)
        except ValueError:
            raise status.bad_request(
                f'unable to convert query parameter {name}: strconv.ParseInt: parsing "{text}": invalid syntax'
            ) from None

    @property
    def dry_run(self) -> bool:
        return "dryRun" in self.query

    @property
    def field_manager(self) -> str:
        """The manager named, or what the User-Agent says before its first slash."""
        return self.query.get("fieldManager") or self.header(b"user-agent").partition("/")[0] or "unknown"


def parse_query(raw: bytes) -> dict[str, str]:
    """Query parameters; of a repeated one the last wins."""
    return dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)) if raw else {}


def parse_path(path: str) -> Target | None:
    """The target of a resource path, or None for every other path (discovery, health, ...)."""
    parts = path.strip("/").split("/")
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    return _target(group, version, rest) if rest else None


def _target(group: str, version: str, rest: list[str]) -> Target | None:
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _NAMESPACE_PARTS):
        namespace, rest = rest[1], rest[2:]
    resource, name, subresource = (*rest, "", "")[:3]
    return Target(group, version, resource, namespace, name, subresource, "/".join(rest[3:]))


_NAMESPACE_PARTS = ("status", "finalize")
