"""The fields of a Pod that only its kubelet reads: what to run, as whom, with which files, and whether it is well."""

import re
from collections.abc import Mapping, Sequence

import msgspec

from shared.api import core
from shared.api.core import Container, Pod, PodSpec
from shared.api.meta import ObjectMeta, Wire, prepared

DEFAULT_GRACE_SECONDS = 30
DEFAULT_FILE_MODE = 0o644
DEFAULT_TOKEN_SECONDS = 3600


class ObjectFieldSelector(Wire, frozen=True):
    field_path: str = ""


class ResourceFieldSelector(Wire, frozen=True):
    """`container_name` is needed in volumes alone; in a container's environment it is that container."""

    container_name: str = ""
    resource: str = ""
    divisor: str | int | float = ""


class KeySelector(Wire, frozen=True):
    """One key of a ConfigMap or Secret."""

    name: str = ""
    key: str = ""
    optional: bool = False


class EnvVarSource(Wire, frozen=True):
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    config_map_key_ref: KeySelector | None = None
    secret_key_ref: KeySelector | None = None


class EnvVar(Wire, frozen=True):
    name: str = ""
    value: str = ""
    value_from: EnvVarSource | None = None


class ObjectReference(Wire, frozen=True):
    """A whole ConfigMap or Secret."""

    name: str = ""
    optional: bool = False


class EnvFromSource(Wire, frozen=True):
    prefix: str = ""
    config_map_ref: ObjectReference | None = None
    secret_ref: ObjectReference | None = None


class KeyToPath(Wire, frozen=True):
    key: str = ""
    path: str = ""
    mode: int | None = None


class ConfigMapVolume(Wire, frozen=True):
    """`default_mode` counts only where the source is a volume of its own."""

    name: str = ""
    items: tuple[KeyToPath, ...] | None = None
    optional: bool = False
    default_mode: int = DEFAULT_FILE_MODE


class SecretProjection(Wire, frozen=True):
    name: str = ""
    items: tuple[KeyToPath, ...] | None = None
    optional: bool = False


class SecretVolume(Wire, frozen=True):
    secret_name: str = ""
    items: tuple[KeyToPath, ...] | None = None
    optional: bool = False
    default_mode: int = DEFAULT_FILE_MODE


class DownwardFile(Wire, frozen=True):
    path: str = ""
    field_ref: ObjectFieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None
    mode: int | None = None


class DownwardVolume(Wire, frozen=True):
    """`default_mode` counts only where the source is a volume of its own."""

    items: tuple[DownwardFile, ...] | None = None
    default_mode: int = DEFAULT_FILE_MODE


class TokenProjection(Wire, frozen=True):
    audience: str = ""
    expiration_seconds: int = DEFAULT_TOKEN_SECONDS
    path: str = ""


class Projection(Wire, frozen=True):
    service_account_token: TokenProjection | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretProjection | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")


class ProjectedVolume(core.ProjectedVolumeSource, frozen=True):
    sources: tuple[Projection, ...] | None = None
    default_mode: int = DEFAULT_FILE_MODE


class EmptyDirVolume(core.EmptyDirVolumeSource, frozen=True):
    """Medium and size are left to this machine's disk."""


class HostPathVolume(core.HostPathVolumeSource, frozen=True):
    type: str = ""


class Volume(core.Volume, frozen=True):
    projected: ProjectedVolume | None = None
    config_map: ConfigMapVolume | None = None
    secret: SecretVolume | None = None
    downward_api: DownwardVolume | None = msgspec.field(default=None, name="downwardAPI")
    empty_dir: EmptyDirVolume | None = None
    host_path: HostPathVolume | None = None


class VolumeMount(Wire, frozen=True):
    name: str = ""
    mount_path: str = ""
    read_only: bool = False
    sub_path: str = ""
    sub_path_expr: str = ""


class Capabilities(Wire, frozen=True):
    add: tuple[str, ...] | None = None
    drop: tuple[str, ...] | None = None


class SecurityContext(Wire, frozen=True):
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool = False
    allow_privilege_escalation: bool = True
    capabilities: Capabilities | None = None


class PodSecurityContext(Wire, frozen=True):
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    fs_group: int | None = None
    supplemental_groups: tuple[int, ...] | None = None


class ExecAction(Wire, frozen=True):
    command: tuple[str, ...] | None = None


class HttpHeader(Wire, frozen=True):
    name: str = ""
    value: str = ""


class HttpGetAction(Wire, frozen=True):
    port: int | str = 0
    path: str = "/"
    host: str = ""
    scheme: str = "HTTP"
    http_headers: tuple[HttpHeader, ...] | None = None


class TcpSocketAction(Wire, frozen=True):
    port: int | str = 0
    host: str = ""


class Probe(Wire, frozen=True):
    exec: ExecAction | None = None
    http_get: HttpGetAction | None = None
    tcp_socket: TcpSocketAction | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None


class ContainerPort(core.ContainerPort, frozen=True):
    name: str = ""


class RunnableContainer(Container, frozen=True):
    env: tuple[EnvVar, ...] | None = None
    env_from: tuple[EnvFromSource, ...] | None = None
    working_dir: str = ""
    ports: tuple[ContainerPort, ...] | None = None
    volume_mounts: tuple[VolumeMount, ...] | None = None
    security_context: SecurityContext = SecurityContext()
    startup_probe: Probe | None = None
    liveness_probe: Probe | None = None
    readiness_probe: Probe | None = None


class RunnableSpec(PodSpec, frozen=True):
    containers: tuple[RunnableContainer, ...] = ()
    init_containers: tuple[RunnableContainer, ...] | None = None
    volumes: tuple[Volume, ...] | None = None
    security_context: PodSecurityContext = PodSecurityContext()
    service_account_name: str = ""


class RunnableMeta(ObjectMeta, frozen=True):
    deletion_grace_period_seconds: int | None = None


@prepared
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
