"""A day of demand on up to a hundred nodes, driven through the whole autoscaler by a clock that is moved by hand.

One group is scaled in four ways, the first of which, Escalator as it is, is the baseline of the others. Beside groups
of smaller machines, consolidation by price stands against the same day without it. Times of creation are the API
server's own, so that nodes look older than they are to whoever asks; no decision here asks how old they are.
"""

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from manager.autoscaler import decision_settings
from manager.autoscaler.environment import ClusterAccess, NodeForecasts, ProcessParts
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.informers import SharedInformers
from shared import settings as settings_module
from shared.clock import ManualClock
from tests.bench import replay_demand, replay_figures
from tests.bench.replay_demand import Day
from tests.bench.replay_figures import Figures
from tests.bench.replay_peaks import NodeModels
from tests.bench.replay_rehearsal import (
    CLOUD,
    GROUP,
    MINUTE,
    MOST_NODES,
    SMALLER,
    STEP_MINUTES,
    ByHand,
    Led,
    Rehearsal,
)
from tests.bench.row import Measure, Row
from tests.support import apiserver
from tests.support.apiserver import EMBEDDED

SEED = 8
ESCALATORS: dict[str, Any] = {
    "name": "shared",
    "label_key": "customer",
    "label_value": "shared",
    "cloud_provider_group_name": GROUP,
    "min_nodes": 3,
    "max_nodes": MOST_NODES,
    "taint_lower_capacity_threshold_percent": 55,
    "taint_upper_capacity_threshold_percent": 70,
    "scale_up_threshold_percent": 80,
    "slow_node_removal_rate": 2,
    "fast_node_removal_rate": 5,
    "soft_delete_grace_period": "1m",
    "hard_delete_grace_period": "10m",
    "scale_up_cool_down_period": "2m",
}


@dataclass(frozen=True)
class Variant:
    """One way to scale: what is added to Escalator's file, the groups beside its own, and further settings."""

    name: str
    options: Mapping[str, str] = field(default_factory=dict)
    more: Sequence[Mapping[str, Any]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


VARIANTS = (
    Variant("compat: escalator", {"compat": "escalator"}),
    Variant("our default"),
    Variant("predicted_peaks: prod", {"predicted_peaks": "prod"}),
    Variant("policy: pending-pods", {"policy": "pending-pods"}),
)
PENDING = {"policy": "pending-pods"}
CONSOLIDATES: dict[str, Any] = {"consolidation": "price", "consolidation_min_node_age_seconds": 0.0}
# As Karpenter's policy WhenEmptyOrUnderutilized does: whatever saves anything goes at once, within a budget of 10 %.
OF_KARPENTER: dict[str, Any] = CONSOLIDATES | {
    "consolidation_min_savings_percent": 0.0,
    "consolidation_balance": 0.0,
    "consolidation_cooldown_seconds": 0.0,
    "scale_down_unneeded_time_seconds": 0.0,
    "scale_down_delay_after_add_seconds": 0.0,
}
OF_SIZES = (
    Variant("three sizes of machines, pending pods", PENDING, SMALLER),
    Variant("the same by Karpenter's rules", PENDING, SMALLER, OF_KARPENTER),
    Variant("the same with --consolidation price", PENDING, SMALLER, CONSOLIDATES),
)
FIGURES = (
    ("nodes, mean", "mean_nodes", "nodes"),
    ("nodes, most", "most_nodes", "nodes"),
    ("cost", "dollars_per_day", "$/day"),
    ("pending", "pending_pod_minutes", "pod-minutes"),
    ("a pod's wait, p95", "wait_p95_minutes", "min"),
    ("a pod's wait, p99", "wait_p99_minutes", "min"),
    ("turns of the target", "turns_per_hour", "1/h"),
    ("turns of the nodes that take pods", "open_turns_per_hour", "1/h"),
    ("overload", "overloaded_node_minutes", "node-minutes"),
    ("pods placed anew", "replaced_pods", "pods"),
    ("a round", "round_wall_ms", "ms"),
    ("a round, its thread's CPU", "round_cpu_ms", "ms of CPU"),
)


def measures_on(cluster: str) -> tuple[Measure, ...]:
    return (partial(_rows, cluster),)


def _rows(cluster: str) -> list[Row]:
    """The figures of every variant beside those of the first of its kind, on that kind of API server."""
    day = replay_demand.day(SEED)
    return [row for variants in (VARIANTS, OF_SIZES) for row in _compared(variants, day, cluster)]


def _compared(variants: Sequence[Variant], day: Day, cluster: str) -> list[Row]:
    baseline, *others = ((variant.name, replayed(variant, day, cluster)) for variant in variants)
    return [
        Row(
            figure=f"a day on {MOST_NODES} nodes, {name}: {label}",
            value=getattr(figures, attribute),
            unit=unit,
            target=None,
            baseline=baseline[0],
            baseline_value=getattr(baseline[1], attribute),
            note=cluster,
        )
        for name, figures in others
        for label, attribute, unit in FIGURES
    ]


def replayed(variant: Variant, day: Day, cluster: str = EMBEDDED) -> Figures:
    """What a day comes to, on an API server of its own."""
    began = time.monotonic()
    with _rehearsal(variant, day, cluster) as rehearsal:
        for minute in range(day.steps * STEP_MINUTES):
            rehearsal.live(minute)
        figures = replay_figures.of(rehearsal.seen)
    print(f"  {variant.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return figures


@contextmanager
def _rehearsal(variant: Variant, day: Day, cluster: str) -> Iterator[Rehearsal]:
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        cloud, groups = directory / "cloud.yaml", directory / "groups.yaml"
        cloud.write_text(yaml.safe_dump({"groups": [CLOUD, *map(dict, variant.more)]}))
        groups.write_text(yaml.safe_dump({"node_groups": [ESCALATORS | dict(variant.options)]}))
        server = apiserver.started(cluster, directory)
        clock = ManualClock(time.time() + MINUTE)
        loops = ByHand()
        models = NodeModels()
        try:
            client, namespace = server.client(), server.add_namespace()
            given: dict[str, Any] = {
                "cloud_provider": "simulated",
                "cloud_config": str(cloud),
                "node_groups": str(groups),
                "nodes": tuple(f"0:{MOST_NODES}:{each['name']}" for each in variant.more),
                "write_status_configmap": False,
            }
            settings = settings_module.combine(AutoscalerSettings, given | dict(variant.settings))
            informers = SharedInformers(client, with_autoscaler=True)
            led = Led(
                settings,
                decision_settings.load(settings, clock.monotonic),
                ClusterAccess(client, informers, namespace, None, lambda: True),
                NodeForecasts(lambda nodes: {}, lambda node: {}, lambda nodes: models.peaks),
                ProcessParts(clock, loops, CollectorRegistry(), random.Random(SEED)),
            )
            prices = {str(each["name"]): float(each["price"]) for each in (CLOUD, *variant.more)}
            rehearsal = Rehearsal(led, informers, client, namespace, loops, clock, day, models, prices)
            try:
                rehearsal.begin()
                yield rehearsal
            finally:
                loops.close()
                led.close()
        finally:
            server.close()
