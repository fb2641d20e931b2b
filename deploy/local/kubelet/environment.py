"""The environment variables of a container. Pure."""

import re

from deploy.local.kubelet.wire import EnvVarSource, RunnableContainer, RunnablePod, expanded
from shared.errors import InvalidInput

_ENTRY = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def environment_of(container: RunnableContainer, pod: RunnablePod, host_ip: str) -> dict[str, str]:
    """The pod's variables; each can refer to earlier ones. Raises InvalidInput for unsupported sources."""
    values: dict[str, str] = {}
    for variable in container.env or ():
        source = variable.value_from
        values[variable.name] = (
            expanded(variable.value, values) if source is None else _field(variable.name, source, pod, host_ip)
        )
    return values


def _field(variable: str, source: EnvVarSource, pod: RunnablePod, host_ip: str) -> str:
    """The value of a pod field as text. Raises InvalidInput."""
    meta, path = pod.metadata, source.field_ref.field_path if source.field_ref else "(another source)"
    if entry := _ENTRY.fullmatch(path):
        return ((meta.labels if entry[1] == "labels" else meta.annotations) or {}).get(entry[2], "")
    known = {
        "metadata.name": meta.name,
        "metadata.namespace": meta.namespace,
        "metadata.uid": meta.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.hostIP": host_ip,
        "status.podIP": host_ip,
    }
    if path not in known:
        raise InvalidInput(
            source=f"pod {meta.key}",
            field=f"env {variable}",
            value=path,
            problem=f"this kubelet knows values and fieldRef to {', '.join(known)}",
        )
    return known[path]
