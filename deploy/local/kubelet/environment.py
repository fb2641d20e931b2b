"""The variables a container starts with."""

import urllib.parse
from collections.abc import Mapping

from deploy.local.kubelet import fields
from deploy.local.kubelet.fields import Host
from deploy.local.kubelet.sources import Missing, Sources
from deploy.local.kubelet.wire import EnvFromSource, EnvVar, KeySelector, RunnableContainer, RunnablePod, expanded
from shared.errors import InvalidInput


def of_server(server: str) -> dict[str, str]:
    """Where containers find the API server; nothing where it serves plain HTTP, which no pod expects."""
    url = urllib.parse.urlsplit(server)
    if url.scheme != "https" or not url.hostname:
        return {}
    return {"KUBERNETES_SERVICE_HOST": url.hostname, "KUBERNETES_SERVICE_PORT": str(url.port or 443)}


def environment_of(container: RunnableContainer, pod: RunnablePod, host: Host, sources: Sources) -> dict[str, str]:
    """The variables the pod sets, later ones seeing earlier ones.

    Raises InvalidInput for what is not known here, Missing for what is not there, HeadroomError.
    """
    values: dict[str, str] = {}
    for source in container.env_from or ():
        values |= _all_of(source, pod, sources)
    for variable in container.env or ():
        value = _value(variable, values, container, pod, host, sources)
        if value is not None:
            values[variable.name] = value
    return values


def _value(
    variable: EnvVar,
    known: Mapping[str, str],
    container: RunnableContainer,
    pod: RunnablePod,
    host: Host,
    sources: Sources,
) -> str | None:
    """None: an optional source that is not there leaves no variable at all."""
    source = variable.value_from
    if source is None:
        return expanded(variable.value, known)
    if source.field_ref is not None:
        return fields.field_value(source.field_ref, pod, host)
    if source.resource_field_ref is not None:
        return fields.resource_value(source.resource_field_ref, container, pod, host)
    if source.config_map_key_ref is not None:
        return _key_of(source.config_map_key_ref, "configmap", pod, sources)
    if source.secret_key_ref is not None:
        return _key_of(source.secret_key_ref, "secret", pod, sources)
    raise InvalidInput(
        source=f"pod {pod.metadata.key}",
        field=f"env {variable.name}",
        value="valueFrom",
        problem="this kubelet knows fieldRef, resourceFieldRef, configMapKeyRef and secretKeyRef",
    )


def _key_of(selector: KeySelector, kind: str, pod: RunnablePod, sources: Sources) -> str | None:
    found = _data(kind, selector.name, pod, sources, optional=selector.optional)
    if selector.key in found:
        return found[selector.key].decode(errors="replace")
    if selector.optional:
        return None
    raise Missing(f'couldn\'t find key {selector.key} in {kind} "{selector.name}"')


def _all_of(source: EnvFromSource, pod: RunnablePod, sources: Sources) -> dict[str, str]:
    found: dict[str, bytes] = {}
    for kind, reference in (("configmap", source.config_map_ref), ("secret", source.secret_ref)):
        if reference is not None:
            found |= _data(kind, reference.name, pod, sources, optional=reference.optional)
    return {source.prefix + key: value.decode(errors="replace") for key, value in found.items()}


def _data(kind: str, name: str, pod: RunnablePod, sources: Sources, *, optional: bool) -> Mapping[str, bytes]:
    try:
        read = sources.config_map if kind == "configmap" else sources.secret
        return read(pod.metadata.namespace, name)
    except Missing:
        if optional:
            return {}
        raise
