"""How fast the local cluster learns: the demo's shortened times, or those of production."""

import enum
from dataclasses import dataclass

import yaml

from shared import durations, names


class ProfileName(enum.StrEnum):
    DEMO = "demo"
    PRODUCTION = "production"


@dataclass(frozen=True)
class Profile:
    """The times that differ. `used_window_seconds` is what the reported usage is averaged over."""

    name: ProfileName
    cold_start_seconds: int
    cpu_half_life_seconds: int
    memory_half_life_seconds: int
    histogram_update_interval_seconds: int
    check_prediction_interval_seconds: int
    reporting_interval_seconds: int
    used_window_seconds: int
    force_update_interval_seconds: int
    checkpoint_interval_seconds: int
    node_update_seconds: int


PROFILES = {
    ProfileName.DEMO: Profile(
        ProfileName.DEMO,
        cold_start_seconds=20,
        cpu_half_life_seconds=30,
        memory_half_life_seconds=60,
        histogram_update_interval_seconds=5,
        check_prediction_interval_seconds=5,
        # A change shows at the next check, half a period ahead; without one a report is forced in between.
        reporting_interval_seconds=20,
        force_update_interval_seconds=12,
        used_window_seconds=10,
        checkpoint_interval_seconds=10,
        node_update_seconds=15,
    ),
    ProfileName.PRODUCTION: Profile(
        ProfileName.PRODUCTION,
        cold_start_seconds=86_400,
        cpu_half_life_seconds=43_200,
        memory_half_life_seconds=86_400,
        histogram_update_interval_seconds=30,
        check_prediction_interval_seconds=20,
        reporting_interval_seconds=60,
        force_update_interval_seconds=600,
        used_window_seconds=300,
        checkpoint_interval_seconds=60,
        node_update_seconds=300,
    ),
}


def agent_settings(profile: Profile) -> str:
    """The agents' settings file (YAML)."""
    return yaml.safe_dump(
        {
            "coldStart": profile.cold_start_seconds,
            "cpuHalfLife": profile.cpu_half_life_seconds,
            "memoryHalfLife": profile.memory_half_life_seconds,
            "histogramUpdateInterval": profile.histogram_update_interval_seconds,
            "checkPredictionInterval": profile.check_prediction_interval_seconds,
            "reportingInterval": profile.reporting_interval_seconds,
            "forceUpdateInterval": profile.force_update_interval_seconds,
            "checkpointInterval": profile.checkpoint_interval_seconds,
        },
        sort_keys=False,
    )


def colocation_config(profile: Profile) -> dict[str, object]:
    """What the ConfigMap says. Cold start and half-lives are left to the agents: simulated ones have their own time."""
    return {
        "enable": True,
        "metricReportIntervalSeconds": profile.reporting_interval_seconds,
        "metricAggregateDurationSeconds": profile.used_window_seconds,
        "updateTimeThresholdSeconds": profile.node_update_seconds,
    }


def config_map_key() -> str:
    return f"{names.INSTALL_NAMESPACE}/{names.CONFIG_MAP}"


def described(profile: Profile) -> list[str]:
    """The values, for the first lines of the output."""

    def text(seconds: float) -> str:
        return durations.render(seconds)

    return [
        f"cold start {text(profile.cold_start_seconds)}, half-lives cpu {text(profile.cpu_half_life_seconds)} "
        f"memory {text(profile.memory_half_life_seconds)}",
        f"histogram update {text(profile.histogram_update_interval_seconds)}, prediction check "
        f"{text(profile.check_prediction_interval_seconds)} (reports a change at once), periodic report "
        f"{text(profile.reporting_interval_seconds)}, forced after {text(profile.force_update_interval_seconds)}, "
        f"usage averaged over {text(profile.used_window_seconds)}, "
        f"Node rewritten after {text(profile.node_update_seconds)} or a change of 10 %",
    ]
