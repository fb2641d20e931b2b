"""The configuration in force: the last valid version of the file."""

from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from manager.autoscaler.cloudprovider import gke
from manager.autoscaler.cloudprovider.cloud_file import ReloadedFile
from manager.autoscaler.cloudprovider.contract import GroupSpec
from manager.autoscaler.cloudprovider.node_template import SUFFIX_LENGTH
from manager.autoscaler.cloudprovider.simulated import config
from manager.autoscaler.cloudprovider.simulated.cloud_state import SimulatedState
from manager.autoscaler.cloudprovider.simulated.config import Autoprovisioning, GroupConfig, SimulatedCloud
from manager.autoscaler.pricing.gce import LABEL_ACCELERATOR
from manager.autoscaler.pricing.model import NVIDIA_GPU
from shared.errors import InvalidInput

MAX_GROUP_NAME = 63 - SUFFIX_LENGTH - 1


class MachineOffer(ReloadedFile[SimulatedCloud]):
    """The groups of the file, and those that are created under it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, config.load)

    def groups(self, state: SimulatedState) -> dict[str, GroupConfig]:
        """All groups: those of the file, and created ones, which have the present timing and faults."""
        created = (name for name in state.groups if name not in self.cloud.groups_by_name)
        made = {name: group for name in created if (group := self.group(name, state)) is not None}
        return {**self.cloud.groups_by_name, **made}

    def group(self, name: str, state: SimulatedState) -> GroupConfig | None:
        """One of `groups`; None if the group does not exist."""
        entry, pace = state.groups.get(name), self.cloud.autoprovisioning
        if name in self.cloud.groups_by_name or entry is None or entry.made_of is None:
            return self.cloud.groups_by_name.get(name)
        return entry.made_of if pace is None else _paced(entry.made_of, pace)

    def created_groups(self, spec: GroupSpec, offered: Autoprovisioning, suffix: str) -> list[GroupConfig]:
        """The groups that a spec makes, one in each zone. Raises InvalidInput for an impossible one."""

        def refused(field: str, value: object, problem: str) -> InvalidInput:
            return InvalidInput(source="node group", field=field, value=value, problem=problem)

        if spec.machine_type not in self.cloud.offered:
            raise refused("machine_type", spec.machine_type, "not on offer")
        named = spec.labels.get(gke.LABEL_ZONE)
        if named is not None and named not in offered.zones:
            raise refused(gke.LABEL_ZONE, named, f"one of {', '.join(offered.zones)}")
        zones: Sequence[str] = offered.zones if named is None else (named,)
        gpus = spec.extra_resources.get(NVIDIA_GPU, 0)
        extra = dict(spec.extra_resources)
        if gpus:
            extra[NVIDIA_GPU] = gke.normalized_gpus(gpus)
            zones = gke.zones_with_gpus(
                spec.labels.get(LABEL_ACCELERATOR, ""), extra[NVIDIA_GPU], zones, spec.machine_type
            )
        name = "-".join((spec.prefix, spec.machine_type, *(("gpu",) if gpus else ()), suffix))
        names = [name, *(f"{name}-{number}" for number in range(1, len(zones)))]
        if len(names[-1]) > MAX_GROUP_NAME:
            raise refused("name", names[-1], f"longer than {MAX_GROUP_NAME} characters")
        return [
            GroupConfig(
                name=name,
                machine_type=spec.machine_type,
                max=offered.max,
                labels=dict(spec.labels),
                taints=tuple(spec.taints),
                extra_resources=extra,
                zone=zone,
                autoprovisioned=True,
            )
            for name, zone in zip(names, zones, strict=True)
        ]


def _paced(group: GroupConfig, pace: config.GroupTiming) -> GroupConfig:
    return replace(
        group,
        boot_seconds=pace.boot_seconds,
        ready_seconds=pace.ready_seconds,
        delete_seconds=pace.delete_seconds,
        faults=pace.faults,
    )
