"""One node on its way out, as far as it has come, and when things happened to its group."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from manager.autoscaler.actuation.drains import Draining
from manager.autoscaler.cloudprovider.contract import NodeRef
from manager.autoscaler.cloudprovider.errors import ProviderError
from manager.autoscaler.scale_down.leaving import DeletionProgress, DeletionStage
from manager.autoscaler.scale_down.removal_status import NodeToRemove
from manager.autoscaler.scale_down.timing import CooldownTimestamps


@dataclass
class Doubt:
    """A deletion that failed in some way: the cloud is to be observed before anybody knows what became of it."""

    error: ProviderError
    observation: int
    until: float  # when a machine that is still there stays
    of_many: bool


@dataclass
class Departure:
    """One node. `ready_at`: nothing keeps it from being deleted since then; `doubt` once that was tried and failed.

    `atomic`: it goes with all others of its group, or not at all. With an `error` it is being taken back.
    """

    removal: NodeToRemove
    ref: NodeRef
    uid: str
    since: float
    began_at: float
    atomic: bool = False
    stage: DeletionStage = DeletionStage.MARKING
    marked_at: float | None = None
    draining: Draining | None = None
    ready_at: float | None = None
    alone: bool = False
    doubt: Doubt | None = None
    error: str = ""
    tried_at: float | None = None

    @property
    def name(self) -> str:
        return self.removal.node

    @property
    def group(self) -> str:
        return self.removal.group

    def told(self) -> DeletionProgress:
        waits_for = () if self.draining is None or self.stage is not DeletionStage.DRAINING else self.draining.waits_for
        return DeletionProgress(self.name, self.group, self.removal.kind, self.stage, self.since, waits_for, self.error)


@dataclass(frozen=True)
class Gone:
    """A node the cloud has taken, until its Node is away; so long by the monotonic clock."""

    group: str
    uid: str
    until: float


@dataclass
class Moments:
    """When something happened last, by the monotonic clock."""

    of_all: dict[str, float] = field(default_factory=dict)
    of_group: dict[str, dict[str, float]] = field(default_factory=dict)

    def note(self, what: str, group: str, now: float) -> None:
        self.of_all[what] = self.of_group.setdefault(group, {})[what] = now

    def told(self, offset: float) -> tuple[CooldownTimestamps, dict[str, CooldownTimestamps]]:
        """By the wall clock, which is so far ahead."""

        def happened(moments: Mapping[str, float]) -> CooldownTimestamps:
            return CooldownTimestamps(**{what: moment + offset for what, moment in moments.items()})

        return happened(self.of_all), {group: happened(moments) for group, moments in self.of_group.items()}
