"""The fields of a Pod that only its kubelet reads: what to run, where, and with which variables."""

from collections.abc import Sequence

from shared.api.core import Container, Pod, PodSpec
from shared.api.meta import ObjectMeta, Wire, prepared
from shared.errors import InvalidInput

DEFAULT_GRACE_SECONDS = 30


class EnvVar(Wire, frozen=True):
    name: str = ""
    value: str = ""
    value_from: dict[str, object] | None = None


class VolumeMount(Wire, frozen=True):
    mount_path: str = ""


class SecurityContext(Wire, frozen=True):
    """The security context of a pod or a container. With `runAsNonRoot`, nothing runs as root; other fields have no
    effect here.
    """

    run_as_non_root: bool = False


class RunnableContainer(Container, frozen=True):
    env: tuple[EnvVar, ...] | None = None
    working_dir: str = ""
    volume_mounts: tuple[VolumeMount, ...] | None = None
    security_context: SecurityContext = SecurityContext()


class RunnableSpec(PodSpec, frozen=True):
    containers: tuple[RunnableContainer, ...] = ()
    security_context: SecurityContext = SecurityContext()


class RunnableMeta(ObjectMeta, frozen=True):
    deletion_grace_period_seconds: int | None = None


@prepared
class RunnablePod(Pod, frozen=True):
    metadata: RunnableMeta = RunnableMeta()
    spec: RunnableSpec = RunnableSpec()

    @property
    def grace_seconds(self) -> int:
        """The seconds that the processes have between SIGTERM and SIGKILL."""
        given = (self.metadata.deletion_grace_period_seconds, self.spec.termination_grace_period_seconds)
        return next((seconds for seconds in given if seconds is not None), DEFAULT_GRACE_SECONDS)


def command_line(container: RunnableContainer) -> Sequence[str]:
    """The command to execute; empty if the pod relies on an image, because there are no images here."""
    return (*container.command, *(container.args or ())) if container.command else ()


def environment_of(container: RunnableContainer) -> dict[str, str]:
    """The container's own variables. Raises InvalidInput for one that takes its value from elsewhere."""
    for variable in container.env or ():
        if variable.value_from is not None:
            problem, source = "this kubelet knows plain values only", f"container {container.name}"
            raise InvalidInput(source=source, field=f"env {variable.name}", value=variable.value_from, problem=problem)
    return {variable.name: variable.value for variable in container.env or ()}
