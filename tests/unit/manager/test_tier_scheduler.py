"""New Mid and Batch pods get the release's scheduler while it renews its Lease."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deploy.local.apiserver import patching
from manager.autoscaler.settings.pending_pods import PendingRules
from manager.nodeside.reports import PersistentProblems
from manager.nodeside.webhook.pods import PodAdmission, Translation
from manager.nodeside.webhook.tier_scheduler import LOOK_SECONDS, PATIENCE_SECONDS, TierScheduler
from shared import durations
from shared.clock import ManualClock
from shared.errors import HeadroomError
from tests.unit.manager.test_webhook_reviews import BATCH, KOORDINATOR, KUBELET, Known, asked, pod

NAME = "headroom-scheduler"
NOW = 1_700_000_000.0


class Town:
    """A scheduler that renews its Lease, or does not, and a manager that looks at it."""

    def __init__(self, fallback_seconds: float = 60, renewed_at: float | None = None) -> None:
        self.clock = ManualClock(NOW)
        self.renewed = None if renewed_at is None else durations.micro_timestamp(renewed_at)
        self.is_away = False
        self.registry = CollectorRegistry()
        self.scheduler = TierScheduler(
            "ns",
            NAME,
            self._renewal,
            self.clock,
            fallback_seconds=fallback_seconds,
            standing=PersistentProblems(None, lambda: False),
            registry=self.registry,
        )

    def _renewal(self) -> str | None:
        if self.is_away:
            raise HeadroomError("no answer")
        return self.renewed

    def passes(self, seconds: float, *, renews: bool) -> None:
        for _ in range(int(seconds // LOOK_SECONDS)):
            self.clock.advance(LOOK_SECONDS)
            if renews:
                self.renewed = durations.micro_timestamp(self.clock.now())
            self.scheduler.look()

    def silent_seconds(self) -> float:
        lines = generate_latest(self.registry).decode().splitlines()
        return next(float(line.rpartition(" ")[2]) for line in lines if line.startswith("headroom_manager_scheduler"))


def test_new_pods_get_the_scheduler_while_it_renews_and_keep_theirs_after_the_fallback_time() -> None:
    town = Town(renewed_at=NOW)
    assert town.scheduler.for_new_pods() == "", "not before its Lease was read"
    town.passes(600, renews=True)
    assert (town.scheduler.for_new_pods(), town.silent_seconds()) == (NAME, 0)
    town.passes(55, renews=False)
    assert town.scheduler.for_new_pods() == NAME
    town.passes(5, renews=False)
    assert (town.scheduler.for_new_pods(), town.silent_seconds()) == ("", 60)
    town.passes(5, renews=True)
    assert town.scheduler.for_new_pods() == NAME


def test_a_manager_that_starts_believes_no_old_renewal() -> None:
    town = Town(renewed_at=NOW - 61)
    town.scheduler.look()
    assert town.scheduler.for_new_pods() == ""
    assert Town().scheduler.for_new_pods() == "", "without a Lease"
    town = Town(renewed_at=NOW + 30)  # by a clock that is ahead
    town.scheduler.look()
    assert town.scheduler.for_new_pods() == NAME


def test_without_a_fallback_pods_wait_for_the_scheduler() -> None:
    town = Town(fallback_seconds=0)
    town.passes(3600, renews=False)
    assert town.scheduler.for_new_pods() == NAME


@pytest.mark.parametrize(("fallback_seconds", "new"), [(60, "keep the default scheduler"), (0, "wait for it")])
def test_a_silent_scheduler_is_reported_once_with_what_happens_and_what_to_do(
    fallback_seconds: float, new: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    town = Town(fallback_seconds)
    town.passes(PATIENCE_SECONDS - LOOK_SECONDS, renews=False)
    assert caplog.messages == []
    town.passes(600, renews=False)
    (message,) = caplog.messages
    assert message.startswith(f"scheduler {NAME} has not renewed its Lease for 60 s: new Mid and Batch pods {new}")
    assert message.endswith("kubectl --namespace ns get pods -l app.kubernetes.io/component=scheduler")
    town.passes(5, renews=True)
    assert caplog.messages[1:] == [f"scheduler {NAME} renews its Lease again: new Mid and Batch pods get it"]


def test_an_api_server_that_does_not_answer_is_no_reason_to_report_the_scheduler(
    caplog: pytest.LogCaptureFixture,
) -> None:
    town = Town(renewed_at=NOW)
    town.passes(10, renews=True)
    town.is_away = True
    town.passes(600, renews=False)
    assert (town.scheduler.for_new_pods(), caplog.messages) == ("", [])
    unreadable = Town()
    unreadable.renewed = "yesterday"
    unreadable.scheduler.look()
    assert unreadable.scheduler.for_new_pods() == ""


@pytest.mark.parametrize("becomes", [KUBELET, KOORDINATOR])
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pod(), NAME),
        (pod(labels=BATCH), NAME),
        (pod(schedulerName="default-scheduler"), NAME),
        (pod(schedulerName="volcano"), "volcano"),
        (pod(nodeName="n1", schedulerName="default-scheduler"), "default-scheduler"),
        (pod(labels={}, schedulerName="default-scheduler"), "default-scheduler"),
        (pod(labels={}), None),
    ],
)
def test_mid_and_batch_pods_with_the_default_scheduler_get_it(
    given: dict[str, Any], expected: str | None, becomes: Translation
) -> None:
    admission = PodAdmission(Known(), becomes, scheduler=lambda: NAME)
    changed = patching.json_patch(given, admission.review(asked(given)).operations)
    assert changed["spec"].get("schedulerName") == expected
    kept = patching.json_patch(given, PodAdmission(Known(), becomes).review(asked(given)).operations)
    assert kept["spec"].get("schedulerName") == given["spec"].get("schedulerName")


def test_the_autoscaler_considers_its_pods_too() -> None:
    rules = PendingRules(allowed_scheduler_names=("default-scheduler",))
    assert rules.allowing(NAME).allowed_scheduler_names == ("default-scheduler", NAME)
    assert rules.allowing("") is rules
    assert PendingRules().allowing(NAME).allowed_scheduler_names == (), "all of them"
