"""The fields of a Pod that only its kubelet reads: what to run, where, and with which variables."""

import re
from collections.abc import Mapping, Sequence

from shared.api.core import Container, Pod, PodSpec
from shared.api.meta import ObjectMeta, Wire, prepared

DEFAULT_GRACE_SECONDS = 30
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][\w.-]*)\)")


class ObjectFieldSelector(Wire, frozen=True):
    field_path: str = ""


class EnvVarSource(Wire, frozen=True):
    field_ref: ObjectFieldSelector | None = None


class EnvVar(Wire, frozen=True):
    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class VolumeMount(Wire, frozen=True):
    mount_path: str = ""


class SecurityContext(Wire, frozen=True):
    """Of a pod or a container. With `runAsNonRoot`, nothing runs as root; other fields have no effect here."""

    run_as_non_root: bool = False


class RunnableContainer(Container, frozen=True):
    env: tuple[EnvVar, ...] | None = None
    working_dir: str = ""
    volume_mounts: tuple[VolumeMount, ...] | None = None
    security_context: SecurityContext = SecurityContext()


class RunnableSpec(PodSpec, frozen=True):
    containers: tuple[RunnableContainer, ...] = ()
    init_containers: tuple[RunnableContainer, ...] | None = None
    service_account_name: str = ""
    security_context: SecurityContext = SecurityContext()


class RunnableMeta(ObjectMeta, frozen=True):
    deletion_grace_period_seconds: int | None = None


@prepared
class RunnablePod(Pod, frozen=True):
    metadata: RunnableMeta = RunnableMeta()
    spec: RunnableSpec = RunnableSpec()

    @property
    def grace_seconds(self) -> int:
        """How many seconds the processes have between SIGTERM and SIGKILL."""
        for seconds in (self.metadata.deletion_grace_period_seconds, self.spec.termination_grace_period_seconds):
            if seconds is not None:
                return seconds
        return DEFAULT_GRACE_SECONDS

    @property
    def all_containers(self) -> tuple[RunnableContainer, ...]:
        """Init containers first, in their start order."""
        return (*(self.spec.init_containers or ()), *self.spec.containers)


def expanded(text: str, values: Mapping[str, str]) -> str:
    """`text` with $(NAME) replaced; as in Kubernetes, an unknown name stays as it is and $$ becomes a dollar."""

    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else values.get(name, match[0])

    return _REFERENCE.sub(replacement, text)


def command_line(container: RunnableContainer, environment: Mapping[str, str]) -> list[str]:
    """The command to execute; empty if the pod relies on an image, because there are no images here."""
    words: Sequence[str] = (*container.command, *(container.args or ())) if container.command else ()
    return [expanded(word, environment) for word in words]
