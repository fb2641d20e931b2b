"""The autoscaler's settings, which are part of the manager's (see `shared.settings`).

Flags have the names and meanings of Cluster Autoscaler and of "Node Auto-provisioning". `checked_settings` checks them
together. Each section adds to the one before, because flags and files know no sections. Every manager imports this
room, which imports nothing else of the autoscaler.
"""

from typing import Annotated

from msgspec import Meta

from manager.autoscaler.settings.replacement import DisruptionSettings

_NAME = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"  # an object name in Kubernetes


class AutoscalerSettings(DisruptionSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All sections, and the settings of reporting.

    Without a `cloud_provider` there is no autoscaler, and all other settings have no effect.
    """

    write_status_configmap: Annotated[bool, Meta(description="keep the status ConfigMap")] = True
    status_config_map_name: Annotated[
        str, Meta(pattern=_NAME, max_length=253, description="name of the status ConfigMap")
    ] = "cluster-autoscaler-status"
    cluster_autoscaler_metrics: Annotated[
        bool, Meta(description="serve Cluster Autoscaler's metrics, too, under their own names")
    ] = False
    emit_per_nodegroup_metrics: Annotated[bool, Meta(description="those of each group among them")] = False
    escalator_metrics: Annotated[
        bool, Meta(description="serve Escalator's metrics of groups that scale by how full they are, under its names")
    ] = False
    decisions_kept: Annotated[int, Meta(ge=1, description="how many past decisions are kept to be asked for")] = 100
    decisions_log: Annotated[str, Meta(description="file for a JSON line of each decision; -: standard output")] = ""
