"""The options of `headroom up`. The command line imports them, so they import no modules of the cluster."""

import enum
from dataclasses import dataclass
from pathlib import Path


class UpFormat(enum.StrEnum):
    TABLE = "table"
    JSON = "json"


class ProfileName(enum.StrEnum):
    DEMO = "demo"
    PRODUCTION = "production"


class ClusterKind(enum.StrEnum):
    """The kind of API server that the cluster has."""

    EMBEDDED = "embedded"
    APISERVER = "apiserver"


class SchedulerKind(enum.StrEnum):
    """The scheduler of the cluster: the embedded one, or kube-scheduler (only with a real control plane)."""

    HEADROOM = "headroom"
    KUBE = "kube-scheduler"


@dataclass(frozen=True)
class LoopbackPorts:
    """Loopback ports; 0 in what a user wishes: any free one."""

    api: int
    manager: int
    agent: int
    webhook: int = 0  # of the manager's admission webhook


@dataclass(frozen=True)
class UpOptions:
    """The command line's options. `for_seconds` None: until Ctrl-C; `cloud`: a file, "none" or, if empty, a sample."""

    nodes: int
    trace: Path | None
    speed: float
    keep: Path | None
    for_seconds: float | None
    as_json: bool
    profile: ProfileName
    ports: LoopbackPorts
    kind: ClusterKind
    scheduler: SchedulerKind
    cloud: str

    @property
    def tells_story(self) -> bool:
        """Whether a simulated pod gets busy, and the log says what comes of it."""
        return self.profile is ProfileName.DEMO and self.nodes > 0 and not self.as_json
