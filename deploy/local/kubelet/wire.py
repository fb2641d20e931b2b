"""The fields of a Pod that only its kubelet reads: what to run, and how long it may take to end."""

import re
from collections.abc import Mapping, Sequence

from shared.api.core import Container, Pod, PodSpec
from shared.api.meta import ObjectMeta, Wire
from shared.errors import InvalidInput

DEFAULT_GRACE_SECONDS = 30


class ObjectFieldSelector(Wire, frozen=True):
    field_path: str = ""


class EnvVarSource(Wire, frozen=True):
    field_ref: ObjectFieldSelector | None = None


class EnvVar(Wire, frozen=True):
    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class RunnableContainer(Container, frozen=True):
    env: tuple[EnvVar, ...] | None = None
    working_dir: str = ""


class RunnableSpec(PodSpec, frozen=True):
    containers: tuple[RunnableContainer, ...] = ()
    init_containers: tuple[RunnableContainer, ...] | None = None


class RunnableMeta(ObjectMeta, frozen=True):
    deletion_grace_period_seconds: int | None = None


class RunnablePod(Pod, frozen=True):
    metadata: RunnableMeta = RunnableMeta()
    spec: RunnableSpec = RunnableSpec()

    @property
    def grace_seconds(self) -> int:
        """How long its processes have between SIGTERM and SIGKILL."""
        for seconds in (self.metadata.deletion_grace_period_seconds, self.spec.termination_grace_period_seconds):
            if seconds is not None:
                return seconds
        return DEFAULT_GRACE_SECONDS

    @property
    def all_containers(self) -> tuple[RunnableContainer, ...]:
        """Init containers first, in the order they start."""
        return (*(self.spec.init_containers or ()), *self.spec.containers)


_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)")


def expanded(text: str, values: Mapping[str, str]) -> str:
    """`text` with $(NAME) replaced; an unknown name stays as it is and $$ is a dollar, as in Kubernetes."""

    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else values.get(name, match[0])

    return _REFERENCE.sub(replacement, text)


def command_line(container: RunnableContainer, environment: Mapping[str, str]) -> list[str]:
    """What to execute; empty where the pod leaves it to an image, of which there is none here."""
    words: Sequence[str] = (*container.command, *(container.args or ())) if container.command else ()
    return [expanded(word, environment) for word in words]


def environment_of(container: RunnableContainer, pod: RunnablePod, host_ip: str) -> dict[str, str]:
    """The variables the pod sets, later ones seeing earlier ones. Raises InvalidInput for sources not known here."""
    values: dict[str, str] = {}
    for variable in container.env or ():
        if variable.value_from is None:
            values[variable.name] = expanded(variable.value, values)
        else:
            values[variable.name] = _field(variable, pod, host_ip)
    return values


def _field(variable: EnvVar, pod: RunnablePod, host_ip: str) -> str:
    reference = variable.value_from.field_ref if variable.value_from else None
    known = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "status.podIP": host_ip,
        "status.hostIP": host_ip,
    }
    if reference is None or reference.field_path not in known:
        raise InvalidInput(
            source=f"pod {pod.metadata.key}",
            field=f"env {variable.name}",
            value=reference.field_path if reference else "valueFrom",
            problem=f"this kubelet knows only fieldRef to {', '.join(known)}",
        )
    return known[reference.field_path]
