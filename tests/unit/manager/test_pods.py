"""The records of pods, and the sums that the informer's changes add up to."""

import sys

import pytest

from manager.pods import NodeRequests, PodLedger, record
from shared.names import PriorityClass, QoS
from shared.quantity import Resources
from tests.unit.manager.objects import GIB, pod


def test_the_last_word_about_a_pod_takes_off_what_was_counted_for_it() -> None:
    ledger = PodLedger()
    running, finished = record(pod(on="n1", cpu="1")), record(pod(on="n1", cpu="1", phase="Succeeded"))
    ledger.replace(None, running)
    # A finished pod that is deleted is announced in its last state, which the ledger may never have seen.
    assert ledger.replace(finished, None) == {"n1"}
    assert ledger.requested("n1") == NodeRequests()
    assert ledger.pods_on("n1") == ()


def test_a_pod_that_moves_concerns_both_nodes() -> None:
    ledger = PodLedger()
    before, after = record(pod(on="n1")), record(pod(on="n2"))
    ledger.replace(None, before)
    assert ledger.replace(before, after) == {"n1", "n2"}
    assert (ledger.pods_on("n1"), ledger.pods_on("n2")) == ((), (after,))


def test_requests_that_mean_nothing_count_as_none(caplog: pytest.LogCaptureFixture) -> None:
    bad = record(pod(cpu="lots", priority=7500))
    assert (bad.requests, bad.qos, bad.priority_class) == (Resources(), QoS.NONE, PriorityClass.MID)
    assert "invalid requests of a pod are ignored" in caplog.text


def test_pods_of_one_template_share_what_they_ask_for() -> None:
    first, second = record(pod("a", cpu="250m")), record(pod("b", cpu="250m"))
    assert first.requests is second.requests
    assert first.requests == Resources(250, GIB)
    # A hundred and fifty thousand of them are in memory.
    assert sum(map(sys.getsizeof, (first, first.key, first.uid))) < 400
