"""What is kept of a pod for schedulers, and how long a node's pods stay the same."""

import msgspec
import pytest

from manager.pods import Estimation, PodLedger, record
from shared import durations, names
from shared.api.core import Pod
from shared.names import Tier
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, NOW, pod

PREFIX = "scheduling.koordinator.sh/load-estimated"


def made(
    priority_class: str = "koord-prod",
    *,
    limits: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Pod:
    since = durations.timestamp(NOW)
    conditions = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": since},
        {"type": "Initialized", "status": "False", "lastTransitionTime": since},
    ]
    return msgspec.convert(
        {
            "metadata": {"labels": {names.LABEL_PRIORITY_CLASS: priority_class}, "annotations": annotations},
            "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]},
            "status": {"conditions": conditions},
        },
        Pod,
    )


def test_limits_are_those_of_the_tier_else_native_ones() -> None:
    both = {"cpu": "2", "memory": "1Gi", names.MID_CPU: "500", names.BATCH_MEMORY: "7"}
    assert record(made("koord-prod", limits=both)).limits == Resources(2000, GIB)
    assert record(made("koord-mid", limits=both)).limits == Resources(500, GIB)
    assert record(made("koord-batch", limits=both)).limits == Resources(2000, 7)
    assert record(made()).limits == Resources()


@pytest.mark.parametrize(
    ("priority_class", "asked", "tier", "held"),
    [
        ("koord-mid", {names.MID_CPU: "500", names.MID_MEMORY: "1Gi"}, Tier.MID, Resources(500, GIB)),
        ("koord-mid", {"cpu": "1"}, None, Resources()),
        ("", {names.MID_CPU: "500"}, Tier.MID, Resources(500, 0)),
        ("koord-prod", {names.BATCH_MEMORY: "7"}, Tier.BATCH, Resources(0, 7)),
        ("koord-free", {names.BATCH_CPU: "7"}, Tier.BATCH, Resources(7, 0)),
        ("koord-batch", {names.MID_CPU: "500"}, Tier.MID, Resources(500, 0)),
        ("koord-batch", {names.MID_CPU: "500", names.BATCH_CPU: "7"}, Tier.BATCH, Resources(7, 0)),
    ],
)
def test_who_requests_of_a_tier_holds_of_it_whatever_its_class(
    priority_class: str, asked: dict[str, str], tier: Tier | None, held: Resources
) -> None:
    known = record(made(priority_class, limits=asked))
    assert (known.held_tier, known.held) == (tier, held)
    assert (known.dispensability is not None) == (tier is not None)


def test_only_a_condition_that_is_true_tells_a_time() -> None:
    known = record(made())
    assert (known.scheduled_at, known.initialized_at) == (NOW, None)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({}, None),
        ({"other": "1"}, None),
        ({f"{PREFIX}-scaling-factors": '{"cpu": 50, "gpu": 3}'}, Estimation(cpu_factor=50)),
        ({f"{PREFIX}-scaling-factors": '{"cpu": "half"}'}, Estimation()),
        ({f"{PREFIX}-scaling-factors": '{"cpu": -1}'}, Estimation()),
        ({f"{PREFIX}-scaling-factors": '{"cpu": 1000}'}, Estimation(cpu_factor=1000)),
        ({f"{PREFIX}-scaling-factors": '{"cpu": 1001}'}, Estimation()),
        ({f"{PREFIX}-scaling-factors": '{"cpu": %s}' % ("9" * 400)}, Estimation()),
        ({f"{PREFIX}-scaling-factors": "[" * 100_000}, Estimation()),
        ({f"{PREFIX}-seconds-after-pod-scheduled": "60"}, Estimation(seconds_after_scheduled=60)),
        ({f"{PREFIX}-seconds-after-initialized": "0"}, Estimation(seconds_after_initialized=0)),
        ({f"{PREFIX}-seconds-after-initialized": "-5"}, Estimation()),
        ({f"{PREFIX}-seconds-after-initialized": "9" * 5000}, Estimation()),
    ],
)
def test_a_pod_may_say_how_its_usage_is_estimated(annotations: dict[str, str], expected: Estimation | None) -> None:
    assert record(made(annotations=annotations)).estimation == expected


def test_a_nodes_pods_are_the_same_object_until_one_of_them_changes() -> None:
    ledger = PodLedger()
    first, second = record(pod("first")), record(pod("second"))
    ledger.replace(None, first)
    before = ledger.pods_on("n1")
    ledger.replace(None, record(pod("elsewhere", on="n2")))
    assert ledger.pods_on("n1") is before
    ledger.replace(None, second)
    after = ledger.pods_on("n1")
    assert (set(before), set(after)) == ({first}, {first, second})
    ledger.replace(first, None)
    ledger.replace(second, None)
    assert ledger.pods_on("n1") == ()
    ledger.replace(None, first)
    assert ledger.pods_on("n1") == (first,)
