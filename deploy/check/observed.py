"""What was read of a cluster for `headroom check`. A part that could not be read is `Unread`, with the reason."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Unread:
    """Why a part could not be read."""

    why: str


Known: TypeAlias = T | Unread


@dataclass(frozen=True)
class CheckedServer:
    """The API server: its version as "v1.36.0", and how far its clock is ahead of this machine's."""

    version: str
    ahead_seconds: float


@dataclass(frozen=True)
class CheckedWorkload:
    """A Deployment or DaemonSet: its pods that are ready, and those wanted."""

    kind: str
    key: str
    labels: Mapping[str, str]
    images: tuple[str, ...]
    arguments: tuple[str, ...]
    wanted: int
    ready: int

    def is_part(self, component: str) -> bool:
        """Whether it is that component of Headroom."""
        of = self.labels.get("app.kubernetes.io/part-of"), self.labels.get("app.kubernetes.io/component")
        return of == ("headroom", component)

    def flag(self, name: str) -> str:
        """The value of a flag in its arguments, empty without it."""
        return next((each.partition("=")[2] for each in self.arguments if each.partition("=")[0] == name), "")

    def runs(self, program: str) -> bool:
        """Whether an image of it has that name."""
        return any(image.partition("@")[0].rpartition("/")[2].partition(":")[0] == program for image in self.images)


@dataclass(frozen=True)
class CheckedNode:
    """A Node. `writers` are the clients that own its Mid and Batch, `report_age_seconds` is None without a report, and
    `ahead_seconds` is how far its kubelet's clock is ahead of the API server's, if that can be told.
    """

    name: str
    measurable: bool
    ready: bool
    writers: frozenset[str]
    report_age_seconds: float | None
    ahead_seconds: float


@dataclass(frozen=True)
class CheckedKubelet:
    """A kubelet's own answers, through the API server."""

    node: str
    reports_pressure: bool
    refuses_cgroup_v1: bool


@dataclass(frozen=True)
class Definition:
    """The NodeMetric definition: whether it keeps predictions, its served and its stored versions."""

    keeps_predictions: bool
    served: tuple[str, ...]
    stored: tuple[str, ...]


@dataclass(frozen=True)
class Leader:
    """The process that holds a Lease, and the age of its last renewal."""

    holder: str
    renewed_seconds_ago: float


@dataclass(frozen=True)
class PodWebhook:
    """A registered webhook for pods, and what became of a Mid pod that was created in a dry run: "" if it was
    translated, else why not.
    """

    configuration: str
    sees_all_pods: bool
    failure_policy: str
    problem: str


def scheduler_name(workloads: Iterable[CheckedWorkload]) -> str:
    """The scheduler that the manager sets in Mid and Batch pods, empty for none."""
    return next((name for each in workloads if each.is_part("manager") and (name := each.flag("--scheduler-name"))), "")


@dataclass(frozen=True)
class Observed:
    """Everything that the checks decide by. `here` is the version of this command, `namespace` that of the release.

    `leader` is the manager that leads, `scheduler` the one of the release's own schedulers that does.
    """

    here: str
    namespace: str
    server: Known[CheckedServer]
    missing_rights: Known[tuple[str, ...]]
    definition: Known[Definition | None]
    pod_security: Known[str]
    workloads: Known[tuple[CheckedWorkload, ...]]
    leader: Known[Leader | None]
    nodes: Known[tuple[CheckedNode, ...]]
    kubelets: tuple[Known[CheckedKubelet], ...]
    webhooks: Known[tuple[PodWebhook, ...]]
    profiles: Known[int]
    extender_requests: Known[int]
    scheduler: Known[Leader | None] = None
