"""The chart's second scheduler: kube-scheduler in pods, with the rights and the configuration that the chart gives it.

No network carries Services to pods here, so that its extender does not answer, which may stop no pod.
"""

import itertools
import json
import os
import signal
from collections.abc import Iterator

import pytest

from deploy.local.apiserver import patching
from tests.apiserver import binaries
from tests.node.images import SCHEDULER, SCHEDULER_TAG, Builder
from tests.node.layout import NODE
from tests.node.pods import Pod, Pods
from tests.node.release import NAMESPACE, Release, quick_values
from tests.support import eventually

pytestmark = pytest.mark.node_only("kube-scheduler runs in pods")

NAME = "headroom-scheduler"
HELD = {"cpu": "10m", "memory": "16Mi"}
TAKEOVER_SECONDS = 180.0  # a Lease that is not renewed is taken over after 15 s
LOOK_SECONDS = 2.0


@pytest.fixture(scope="module")
def scheduled(lending: Release) -> Iterator[Release]:
    """With two replicas of it."""
    cluster = lending.cluster
    cache = binaries.cache_home(os.environ) / "node"
    with binaries.locked(cache / "lock"):
        archive = Builder(cache, cluster.layout.tools).scheduler(cluster.layout.assets / "kube-scheduler")
    cluster.inside("ctr", "--namespace=k8s.io", "images", "import", archive)
    scheduler = {
        "enabled": True,
        "image": {"repository": SCHEDULER, "tag": SCHEDULER_TAG},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    }
    release = Release(cluster, patching.merge(quick_values(), {"scheduler": scheduler}))
    release.install()
    yield release
    lending.install()


def leader(release: Release) -> str:
    """The identity that holds the Lease: the pod's name and a part of its own."""
    found = release.cluster.kubectl("get", "lease", NAME, f"--namespace={NAMESPACE}", "--output=json")
    return str(json.loads(found)["spec"].get("holderIdentity") or "")


def bound_by(release: Release, name: str) -> set[str]:
    """Who says to have bound the pod."""
    found = json.loads(release.cluster.kubectl("get", "events", "--output=json"))["items"]
    return {
        each.get("reportingComponent") or each["source"]["component"]
        for each in found
        if each["reason"] == "Scheduled" and each["involvedObject"]["name"] == name
    }


def test_mid_pods_are_bound_by_the_second_scheduler_and_by_its_next_leader_when_it_is_killed(
    scheduled: Release, pods: Pods
) -> None:
    numbers = itertools.count()

    def given(pod: Pod) -> bool:
        return bool(pod["spec"]["schedulerName"] == NAME)

    def created() -> Pod:
        name = f"mid-{next(numbers)}"
        pods.create(name, tier="koord-mid", node=NODE, requests=HELD)
        return pods.get(name)

    eventually(lambda: given(created()), TAKEOVER_SECONDS, LOOK_SECONDS)  # new pods get it once its Lease is renewed
    assert given(pods.run("mid", tier="koord-mid", node=NODE, requests=HELD))
    eventually(lambda: bound_by(scheduled, "mid") == {NAME}, interval_seconds=0.5)
    assert not given(pods.run("prod", node=NODE, requests=HELD))

    first = leader(scheduled)
    (pod,) = (each for each in scheduled.pods("scheduler") if first.startswith(each["metadata"]["name"]))
    scheduled.cluster.signal(scheduled.process(pod), signal.SIGKILL)
    assert given(pods.run("after", tier="koord-mid", node=NODE, requests=HELD))
    eventually(lambda: bound_by(scheduled, "after") == {NAME}, interval_seconds=0.5)
    assert leader(scheduled) not in ("", first)
