"""The cloud for whoever asks beside the rounds."""

import threading

import pytest

from manager.autoscaler.asking import SharedCloud
from manager.autoscaler.cloudprovider.contract import Group
from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cloudprovider.guard import Guard
from manager.autoscaler.cloudprovider.ownership import Ownership
from manager.autoscaler.pricing.model import Machine
from manager.autoscaler.pricing.price_file import FilePricing
from shared.quantity import Amounts
from tests.unit.manager.clouds import NODE, MemoryCloud

OURS = Ownership({"web": None})


def test_the_lock_is_held_for_one_question_and_not_between_two() -> None:
    lock = threading.Lock()
    held = []

    class Prices(FilePricing):
        def node_price(self, machine: Machine) -> float:
            held.append(lock.locked())
            return 1.0

        def pod_price(self, requests: Amounts) -> float:
            held.append(lock.locked())
            return 2.0

    cloud = MemoryCloud(Group("web", 0, 5, 1))
    cloud.model = Prices()
    guard = Guard(cloud, OURS)
    guard.observe()
    shared = SharedCloud(guard, lock)
    prices = shared.pricing()
    assert prices is not None
    assert (prices.node_price(Machine({})), prices.pod_price({}), shared.template("web")) == (1.0, 2.0, NODE)
    assert list(shared.machine_types()) == ["m"]
    assert held == [True, True]
    assert not lock.locked()


def test_it_stays_at_what_was_seen_while_rounds_go_on() -> None:
    cloud = MemoryCloud(Group("web", 0, 5, 1))
    guard = Guard(cloud, OURS)
    with pytest.raises(Unavailable):
        SharedCloud(guard, threading.Lock())
    guard.observe()
    shared = SharedCloud(guard, threading.Lock())
    cloud.listed = [Group("web", 0, 5, 4)]
    guard.observe()
    assert shared.observed.groups["web"].group.target_size == 1
