"""The content of a request: its path as group, version, resource, name; its query as typed options."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl

from deploy.local.apiserver import status

_NAMESPACE_PARTS = ("status", "finalize")
_VALIDATIONS = ("Ignore", "Strict", "Warn")


@dataclass(frozen=True, slots=True)
class Target:
    """The API object or collection that the path addresses."""

    group: str
    version: str
    resource: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request with its body."""

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
        """A boolean query parameter; without a value it means true."""
        return self.query.get(name, "false").lower() not in ("0", "false")

    def number(self, name: str, default: int = 0) -> int:
        """Raises StatusError (400)."""
        text = self.query.get(name, "")
        try:
            return int(text) if text else default
        except ValueError:
            raise status.bad_request(f"{name}: {text!r} is not a number") from None

    @property
    def dry_run(self) -> bool:
        """Raises StatusError (422) for an unknown directive."""
        asked = self.query.get("dryRun")
        if asked not in (None, "All"):
            raise status.invalid_option(status.unsupported("dryRun", asked, ("All",)))
        return asked is not None

    @property
    def field_validation(self) -> str:
        """Ignore, Strict or Warn. Raises StatusError (422)."""
        asked = self.query.get("fieldValidation") or "Warn"
        if asked not in _VALIDATIONS:
            raise status.invalid_option(status.unsupported("fieldValidation", asked, _VALIDATIONS))
        return asked


def parse_query(raw: bytes) -> dict[str, str]:
    """Query parameters; the last value of a repeated one wins."""
    return dict(parse_qsl(raw.decode("latin-1"), keep_blank_values=True)) if raw else {}


def parse_path(path: str) -> Target | None:
    """The target of a resource path, or None for any other path (discovery, health, ...)."""
    match path.strip("/").split("/"):
        case ["api", version, *rest] if rest:
            group = ""
        case ["apis", group, version, *rest] if rest:
            pass
        case _:
            return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _NAMESPACE_PARTS):
        namespace, rest = rest[1], rest[2:]
    resource, name, *subresource = (*rest, "")
    return Target(group, version, resource, namespace, name, "/".join(subresource).rstrip("/"))
