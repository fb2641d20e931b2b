"""The environment of an autoscaler: the cluster, the node side's forecasts, the process, and the cloud.

Locks: the loop and the node deletions share the cloud lock, which stands for the guard's one thread. A plan request
never takes it: it reads the observation without a lock, and asks the provider in its own thread, within its own
deadline. So neither waits for the other, even if the cloud is slow, and there is no lock order to keep.
"""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from manager.autoscaler.cloudprovider import plugin
from manager.autoscaler.cloudprovider.contract import Provider
from manager.autoscaler.cloudprovider.deadline import Caller
from manager.autoscaler.cloudprovider.guard import CloudObservation, Guard
from manager.autoscaler.cloudprovider.plugin import ManagedGroups, ProviderRequest
from manager.autoscaler.cloudprovider.reader import CloudReader
from manager.autoscaler.cloudprovider.rights import RightsReview
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.listers import Expected, Peaks
from manager.autoscaler.planning.group_templates import OfferedBy
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.settings.modes import Mode
from manager.informers import SharedInformers
from shared.clock import Clock
from shared.kube.client import Client
from shared.kube.events import Recorder
from shared.telemetry import Loops


@dataclass(frozen=True)
class NodeForecasts:
    """The node side's forecasts of what nodes will lend and use.

    See `ClusterObjects` for `expected` and `peaks`, and `cluster_view.open_view` for `offered_by`.
    """

    expected: Expected
    offered_by: OfferedBy
    peaks: Peaks


@dataclass(frozen=True)
class ClusterAccess:
    """The cluster, and this process's rights in it.

    `namespace` is the manager's own. Without a `recorder` there are no Events. A dry run writes nothing at all.
    """

    client: Client
    informers: SharedInformers
    namespace: str
    recorder: Recorder | None
    is_leader: Callable[[], bool]
    dry_run: bool = False

    def may_write(self) -> bool:
        return not self.dry_run and self.is_leader()


@dataclass(frozen=True)
class ProcessParts:
    """Clock, threads and metrics of the process; `chance` breaks ties."""

    clock: Clock
    loops: Loops
    registry: CollectorRegistry
    chance: random.Random = field(default_factory=random.Random)


class PlanCloud(CloudReader):
    """See `cluster_view.ObservedCloud`. Serves one plan request at a time; each starts with `begin`."""

    def __init__(self, provider: Provider, guard: Guard, *, deadline_seconds: float) -> None:
        """All provider calls of one plan request end within `deadline_seconds`."""
        caller = Caller(provider.name, deadline_seconds)
        super().__init__(provider, caller)
        self._guard = guard
        self._deadline_seconds = deadline_seconds
        self._observed = CloudObservation()

    def begin(self) -> None:
        """Switches to the last observation. Raises ProviderError without one."""
        observed = self._guard.observed
        if observed is not self._observed:
            self.forget()
        self._observed = observed
        self._caller.end_within(self._deadline_seconds)

    @property
    def observed(self) -> CloudObservation:
        return self._observed

    def close(self) -> None:
        self._caller.close()


@dataclass(frozen=True)
class CloudAccess:
    """The provider behind its guard.

    The guard serves one thread at a time, so `lock` is held during its calls. The loop and the node deletions take it
    before any other lock; a plan request asks `for_questions`, which never takes it. `rights` reviews
    what the provider may do in the cluster.
    """

    guard: Guard
    for_questions: PlanCloud
    rights: RightsReview
    lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self, *, cleanup: bool) -> None:
        self.for_questions.close()
        self.guard.close(cleanup=cleanup)


def open_cloud(
    settings: AutoscalerSettings, decision_settings: DecisionSettings, access: ClusterAccess, process: ProcessParts
) -> CloudAccess:
    """The cloud that the settings name. Raises InvalidInput for an invalid configuration."""
    by_id = {each.cloud_provider_group_name: each for each in decision_settings.groups}
    own_options = {name: each.own_options.get(settings.cloud_provider) for name, each in by_id.items()}
    ours = ManagedGroups(
        decision_settings.ownership.listed,
        enforced=[name for name, each in by_id.items() if decision_settings.scan_mode_of(each) is Mode.ENFORCE],
        own_options={name: each for name, each in own_options.items() if each is not None},
        options=decision_settings.group_options,
        minds_drift=decision_settings.disruption.replaces_any_drifted,
        discovery=settings.node_group_auto_discovery,
    )
    request = ProviderRequest(
        config=Path(settings.cloud_config) if settings.cloud_config else None,
        client=access.client,
        namespace=access.namespace,
        clock=process.clock,
        groups=ours,
        loops=None if access.dry_run else process.loops,
    )
    provider = plugin.build(settings.cloud_provider, request)
    seconds = settings.cloud_provider_timeout_seconds
    guard = Guard(provider, decision_settings.ownership, deadline_seconds=seconds)
    rights = RightsReview(
        access.client, settings.cloud_provider, plugin.find(settings.cloud_provider).rights(request), process.clock
    )
    return CloudAccess(guard, PlanCloud(provider, guard, deadline_seconds=seconds), rights)
