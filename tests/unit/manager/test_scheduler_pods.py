"""A second scheduler restarts for a new authority before a port serves a certificate of it."""

from typing import Any

import msgspec
import pytest

from manager.nodeside.webhook import certificates
from manager.nodeside.webhook.certificates import Material, Rotation
from manager.nodeside.webhook.scheduler_pods import SPREAD_SECONDS, SchedulerPod, outdated
from shared import durations
from tests.unit.manager.test_webhook_certificates import DAY, HOSTS, NOW

LATER = NOW + 245 * DAY
SETTLED = 2 * SPREAD_SECONDS


def pod(name: str, started_at: float | None, *, ready: bool = True) -> SchedulerPod:
    state: dict[str, Any] = {"waiting": {"reason": "ContainerCreating"}}
    if started_at is not None:
        state = {"running": {"startedAt": durations.timestamp(started_at)}}
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    status = {"conditions": conditions, "containerStatuses": [{"name": "scheduler", "state": state}]}
    return msgspec.convert({"metadata": {"name": name}, "status": status}, SchedulerPod)


def advanced(material: Material | None, at: float) -> Material:
    return certificates.advanced(material, HOSTS, at, Rotation(), published=True)


@pytest.fixture(scope="module")
def first() -> Material:
    return advanced(None, NOW)


@pytest.fixture(scope="module")
def prepared(first: Material) -> Material:
    """With the next authority, at LATER."""
    return advanced(first, LATER)


def test_pods_that_started_with_the_only_authority_go_on(first: Material) -> None:
    assert outdated([pod("a", NOW), pod("b", NOW + 1)], first, NOW + SETTLED) is None


def test_pods_that_started_before_the_newest_authority_had_spread_restart_the_oldest_first(prepared: Material) -> None:
    pods = [pod("young", LATER + SPREAD_SECONDS - 1), pod("old", NOW), pod("new", LATER + SPREAD_SECONDS)]
    assert outdated(pods, prepared, LATER + SETTLED - 1) is None, "a new pod might still find the old file"
    due = outdated(pods, prepared, LATER + SETTLED)
    assert due is not None
    assert due.metadata.name == "old"
    due = outdated([pods[0], pods[2]], prepared, LATER + SETTLED)
    assert due is not None
    assert due.metadata.name == "young"
    assert outdated([pods[2]], prepared, LATER + SETTLED) is None


def test_they_restart_while_the_port_still_serves_a_certificate_that_they_trust(prepared: Material) -> None:
    at = LATER + SETTLED + 600
    assert outdated([pod("old", NOW)], advanced(prepared, at), at) is not None
    assert advanced(prepared, at).serving == prepared.serving


def test_no_pod_restarts_while_another_one_is_not_ready(prepared: Material) -> None:
    for other in (pod("other", LATER + SETTLED, ready=False), pod("other", None, ready=False)):
        assert outdated([pod("old", NOW), other], prepared, LATER + SETTLED + 60) is None
    assert outdated([], prepared, LATER + SETTLED) is None


def test_an_authority_that_replaces_all_others_restarts_every_pod(first: Material) -> None:
    other = certificates.advanced(first, ("elsewhere",), LATER, Rotation(), published=True)
    assert outdated([pod("a", LATER - 1)], other, LATER + SETTLED) is not None
    assert outdated([pod("a", LATER)], other, LATER + SETTLED) is None
