"""The learning speed of the local cluster: the demo's shortened times, or those of production."""

from collections.abc import Mapping
from dataclasses import dataclass

import yaml

from deploy.local.options import ProfileName
from shared import names


@dataclass(frozen=True)
class ClusterProfile:
    """The times that differ, in seconds, by the names of the agents' settings and of the colocation configuration."""

    agent: Mapping[str, int]
    policy: Mapping[str, int]


PROFILES = {
    ProfileName.DEMO: ClusterProfile(
        agent={
            # A day takes 48 seconds: predictions are judged from the first minute on, and old load fades in minutes.
            "predictionHour": 2,
            "histogramUpdateInterval": 2,
            "checkPredictionInterval": 2,
            # A change shows at the next check, half a period ahead; without a change, a report is forced in between.
            "reportingInterval": 20,
            "forceUpdateInterval": 12,
            "checkpointInterval": 10,
        },
        policy={
            "metricReportIntervalSeconds": 20,
            "metricAggregateDurationSeconds": 10,
            "updateTimeThresholdSeconds": 15,
        },
    ),
    ProfileName.PRODUCTION: ClusterProfile(
        agent={
            "predictionHour": 3600,
            "histogramUpdateInterval": 30,
            "checkPredictionInterval": 20,
            "reportingInterval": 60,
            "forceUpdateInterval": 600,
            "checkpointInterval": 60,
        },
        policy={
            "metricReportIntervalSeconds": 60,
            "metricAggregateDurationSeconds": 300,
            "updateTimeThresholdSeconds": 300,
        },
    ),
}


def agent_settings(profile: ClusterProfile) -> str:
    """The agents' settings file (YAML)."""
    return yaml.safe_dump(dict(profile.agent), sort_keys=False)


def colocation_config(profile: ClusterProfile) -> dict[str, object]:
    """The ConfigMap's data. The agents set the length of an hour: simulated agents have their own time."""
    return {"enable": True, **profile.policy}


def config_map_key() -> str:
    return f"{names.INSTALL_NAMESPACE}/{names.CONFIG_MAP}"
