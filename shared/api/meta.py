"""Object metadata, and the base of every wire struct."""

from typing import TypeVar

import msgspec

from shared import durations

S = TypeVar("S", bound=msgspec.Struct)


def prepared(kind: type[S]) -> type[S]:
    """Builds msgspec's type information of `kind` and the structs inside it.

    msgspec would otherwise build it at the first decode, and two threads that do so at once crash the interpreter
    (msgspec 0.22). Needed for every struct that is decoded at run time and is not part of a prepared one.
    """
    msgspec.json.Decoder(kind)
    return kind


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A struct with Kubernetes' camelCase names; absent fields are left out, unknown ones ignored."""


class OwnerReference(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(Wire, frozen=True):
    """The metadata of an object of Kubernetes, with the fields that Headroom reads."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def key(self) -> str:
        """ "namespace/name", or the name alone where there is no namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def created_at(self) -> float:
        """Unix seconds; 0 when the server does not say."""
        return durations.instant(self.creation_timestamp) if self.creation_timestamp else 0.0

    def label(self, name: str) -> str | None:
        return (self.labels or {}).get(name)

    def annotation(self, name: str) -> str | None:
        return (self.annotations or {}).get(name)
