"""The cloud as the loop and plan requests use it."""

import threading
from dataclasses import dataclass, field

from manager.autoscaler.cloudprovider import build
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.plugin import ManagedGroups
from manager.autoscaler.decision_settings import DecisionSettings
from manager.autoscaler.environment import ClusterAccess, ProcessParts
from manager.autoscaler.modes import Mode
from manager.autoscaler.plan_cloud import PlanCloud
from manager.autoscaler.settings import AutoscalerSettings


@dataclass(frozen=True)
class CloudAccess:
    """The provider behind its guard.

    The guard serves one thread at a time, so `lock` is held during its calls. The loop and the node deletions take it
    before any other lock; a plan request asks `for_questions`, which never takes it (see `plan_cloud`).
    """

    guard: Guard
    for_questions: PlanCloud
    lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self, *, cleanup: bool) -> None:
        self.for_questions.close()
        self.guard.close(cleanup=cleanup)


def open_cloud(
    settings: AutoscalerSettings, config: DecisionSettings, access: ClusterAccess, process: ProcessParts
) -> CloudAccess:
    """The cloud that the settings name. Raises InvalidInput for an invalid configuration."""
    by_id = {each.cloud_provider_group_name: each for each in config.groups}
    own_options = {name: each.own_options.get(settings.cloud_provider) for name, each in by_id.items()}
    ours = ManagedGroups(
        config.ownership.listed,
        enforced=[name for name, each in by_id.items() if config.scan_mode_of(each) is Mode.ENFORCE],
        own_options={name: each for name, each in own_options.items() if each is not None},
        options=config.group_options,
    )
    provider = build.build(
        settings.cloud_provider,
        settings.cloud_config,
        client=access.client,
        namespace=access.namespace,
        clock=process.clock,
        loops=None if access.dry_run else process.loops,
        ours=ours,
    )
    seconds = settings.cloud_provider_timeout_seconds
    guard = Guard(provider, config.ownership, deadline_seconds=seconds)
    return CloudAccess(guard, PlanCloud(provider, guard, deadline_seconds=seconds))
