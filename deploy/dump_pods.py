"""Pods of a list as kubectl prints it. Pods of one workload differ little, and share the rest: a large cluster has a
hundred thousand pods and a few thousand specs.

A text in JSON has no raw line breaks and escapes its quotes. So a line that consists of the indentation and a field
name is that field.
"""

from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from deploy.dump_heads import FieldsOwner, Head, HeadMeta, HeadSpec, HeadStatus
from shared.api.core import Pod
from shared.api.meta import ObjectMeta, OwnerReference, prepared

PodT = TypeVar("PodT", bound=Pod)

_START = b'{\n            "apiVersion": "v1",\n            "kind": "Pod",\n            "metadata": '
_SPEC, _STATUS = b',\n            "spec": ', b',\n            "status": '
_END = b"\n        }"
_NODE, _NODE_END = b'\n                "nodeName": "', b'",'
_TOKEN = b'"name": "kube-api-access'  # the volume that the API server adds to each pod, named differently for each
_MOST_KEPT = 20_000  # texts of specs: if no two pods are alike, keeping them is useless


@prepared
class _PodMeta(ObjectMeta, frozen=True):
    managed_fields: tuple[FieldsOwner, ...] | None = None


class PartedPod(NamedTuple):
    """A pod before it is known whether it is wanted. The `spec` omits the node."""

    head: Head
    metadata: _PodMeta
    spec: bytes
    status: bytes


class PodReader(Generic[PodT]):
    """Decodes pods as `kind`. For unknown layouts it raises msgspec.DecodeError, and the general reader takes over."""

    def __init__(self, kind: type[PodT]) -> None:
        self._kind = kind
        fields = {each.name: each.type for each in msgspec.structs.fields(kind)}
        self._meta, self._head = msgspec.json.Decoder(_PodMeta), msgspec.json.Decoder(HeadStatus)
        self._spec, self._status = msgspec.json.Decoder(fields["spec"]), msgspec.json.Decoder(fields["status"])
        self._specs: dict[bytes, Any] = {}
        self._labels: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}
        self._owners: dict[tuple[OwnerReference, ...], tuple[OwnerReference, ...]] = {}

    def part(self, text: bytes) -> PartedPod:
        spec_at = text.find(_SPEC)
        status_at = text.find(_STATUS, spec_at)
        if not text.startswith(_START) or spec_at < 0 or status_at < 0 or not text.endswith(_END):
            raise msgspec.DecodeError("laid out otherwise")
        meta = self._meta.decode(text[len(_START) : spec_at])
        spec, node = _without_node(text[spec_at + len(_SPEC) : status_at])
        status = text[status_at + len(_STATUS) : -len(_END)]
        known = HeadMeta(
            meta.name, meta.namespace, meta.creation_timestamp, meta.deletion_timestamp, meta.managed_fields
        )
        return PartedPod(Head(known, HeadSpec(node), self._head.decode(status)), meta, spec, status)

    def pod(self, parts: PartedPod) -> PodT:
        meta, text = parts.metadata, _without_token_names(parts.spec)
        spec = self._specs.get(text)
        if spec is None:
            if len(self._specs) >= _MOST_KEPT:
                self._specs.clear()
            spec = self._specs[text] = self._spec.decode(text)
        shared = replace(
            meta,
            labels=meta.labels and self._labels.setdefault(tuple(meta.labels.items()), meta.labels),
            owner_references=meta.owner_references
            and self._owners.setdefault(meta.owner_references, meta.owner_references),
            managed_fields=None,
        )
        return self._kind(shared, replace(spec, node_name=parts.head.node_name), self._status.decode(parts.status))


def _without_node(spec: bytes) -> tuple[bytes, str]:
    start = spec.find(_NODE)
    if start < 0:
        return spec, ""
    end = spec.find(_NODE_END, start)
    return spec[:start] + spec[end + len(_NODE_END) :], spec[start + len(_NODE) : end].decode()


def _without_token_names(spec: bytes) -> bytes:
    """The text without the volume's name, which differs for each pod, in the containers' mounts."""
    start = spec.find(_TOKEN)
    if start < 0:
        return spec
    end = spec.find(b'"', start + len(_TOKEN)) + 1
    return spec.replace(spec[start:end], _TOKEN + b'"')
