"""How fast the local cluster learns: with the demo's shortened times, or with those of production."""

from dataclasses import dataclass

import yaml

from deploy.local.options import ProfileName
from shared import durations, names


@dataclass(frozen=True)
class ClusterProfile:
    """The times that differ. `used_window_seconds`: the period over which the reported usage is averaged."""

    name: ProfileName
    prediction_hour_seconds: int
    histogram_update_interval_seconds: int
    check_prediction_interval_seconds: int
    reporting_interval_seconds: int
    used_window_seconds: int
    force_update_interval_seconds: int
    checkpoint_interval_seconds: int
    node_update_seconds: int


PROFILES = {
    ProfileName.DEMO: ClusterProfile(
        ProfileName.DEMO,
        # A day takes 48 seconds: predictions are judged from the first minute on, and old load fades within minutes.
        prediction_hour_seconds=2,
        histogram_update_interval_seconds=2,
        check_prediction_interval_seconds=2,
        # A change shows at the next check, half a period ahead; without a change, a report is forced in between.
        reporting_interval_seconds=20,
        force_update_interval_seconds=12,
        used_window_seconds=10,
        checkpoint_interval_seconds=10,
        node_update_seconds=15,
    ),
    ProfileName.PRODUCTION: ClusterProfile(
        ProfileName.PRODUCTION,
        prediction_hour_seconds=3600,
        histogram_update_interval_seconds=30,
        check_prediction_interval_seconds=20,
        reporting_interval_seconds=60,
        force_update_interval_seconds=600,
        used_window_seconds=300,
        checkpoint_interval_seconds=60,
        node_update_seconds=300,
    ),
}


def agent_settings(profile: ClusterProfile) -> str:
    """The agents' settings file (YAML)."""
    return yaml.safe_dump(
        {
            "predictionHour": profile.prediction_hour_seconds,
            "histogramUpdateInterval": profile.histogram_update_interval_seconds,
            "checkPredictionInterval": profile.check_prediction_interval_seconds,
            "reportingInterval": profile.reporting_interval_seconds,
            "forceUpdateInterval": profile.force_update_interval_seconds,
            "checkpointInterval": profile.checkpoint_interval_seconds,
        },
        sort_keys=False,
    )


def colocation_config(profile: ClusterProfile) -> dict[str, object]:
    """The ConfigMap's data. The agents set the length of an hour: simulated agents have their own time."""
    return {
        "enable": True,
        "metricReportIntervalSeconds": profile.reporting_interval_seconds,
        "metricAggregateDurationSeconds": profile.used_window_seconds,
        "updateTimeThresholdSeconds": profile.node_update_seconds,
    }


def config_map_key() -> str:
    return f"{names.INSTALL_NAMESPACE}/{names.CONFIG_MAP}"


def described(profile: ClusterProfile) -> list[str]:
    """The values, for the first lines of the output."""

    def text(seconds: float) -> str:
        return durations.render(seconds)

    return [
        f"an hour of the prediction takes {text(profile.prediction_hour_seconds)}, a day "
        f"{text(24 * profile.prediction_hour_seconds)}",
        f"histogram update {text(profile.histogram_update_interval_seconds)}, prediction check "
        f"{text(profile.check_prediction_interval_seconds)} (reports a change at once), periodic report "
        f"{text(profile.reporting_interval_seconds)}, forced after {text(profile.force_update_interval_seconds)}, "
        f"usage averaged over {text(profile.used_window_seconds)}, "
        f"Node rewritten after {text(profile.node_update_seconds)} or a change of 10 %",
    ]
