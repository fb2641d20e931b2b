"""What a pod may learn of itself: fieldRef and resourceFieldRef, in its environment and in its files. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from deploy.local.kubelet.wire import ObjectFieldSelector, ResourceFieldSelector, RunnableContainer, RunnablePod
from shared import quantity
from shared.errors import InvalidInput
from shared.quantity import QuantityError, Resources

_ENTRY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_SIDES = ("limits", "requests")
_DEFAULT_DIVISOR = "1"


@dataclass(frozen=True)
class Host:
    """What a pod may ask about the machine it runs on."""

    ip: str
    allocatable: Resources


def field_value(reference: ObjectFieldSelector, pod: RunnablePod, host: Host) -> str:
    """The field as text. Raises InvalidInput for one that pods do not have."""
    meta, path = pod.metadata, reference.field_path
    entry = _ENTRY.fullmatch(path)
    if entry:
        return ((meta.labels if entry[1] == "labels" else meta.annotations) or {}).get(entry[2], "")
    known = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "metadata.labels": _lines(meta.labels),
        "metadata.annotations": _lines(meta.annotations),
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": host.ip,
        "status.hostIPs": host.ip,
        "status.podIP": host.ip,
        "status.podIPs": host.ip,
    }
    if path not in known:
        raise InvalidInput(
            source=f"pod {meta.key}", field="fieldRef", value=path, problem=f"not one of {', '.join(known)}"
        )
    return known[path]


def resource_value(reference: ResourceFieldSelector, container: RunnableContainer, pod: RunnablePod, host: Host) -> str:
    """The container's limit or request in units of the divisor, rounded up; a limit it lacks is all of the node.

    Raises InvalidInput.
    """
    side, _, name = reference.resource.partition(".")
    try:
        if side not in _SIDES or not name:
            raise QuantityError("expected for example limits.cpu or requests.memory")
        own = container.resources.limits if side == "limits" else container.resources.requests
        asked: object = (own or {}).get(name, "0")
        amount = quantity.milli(asked if isinstance(asked, str | int | float) else "0")
        if amount == 0 and side == "limits":
            amount = quantity.milli(host.allocatable.quantities().get(name, "0"))
        divisor = quantity.milli(reference.divisor or _DEFAULT_DIVISOR) or quantity.milli(_DEFAULT_DIVISOR)
    except QuantityError as error:
        raise InvalidInput(
            source=f"pod {pod.metadata.key}", field="resourceFieldRef", value=reference.resource, problem=str(error)
        ) from error
    return str(-(-amount // divisor))


def _lines(entries: Mapping[str, str] | None) -> str:
    """Labels or annotations as a file holds them: sorted, one on a line, values quoted."""
    return "\n".join(f"{key}={_quoted(value)}" for key, value in sorted((entries or {}).items()))


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'
