"""What `headroom check` concludes from what it has read."""

import json
from dataclasses import replace

import pytest

from deploy.check import command, reading
from deploy.check.command import Report
from deploy.check.findings import Finding, Verdict, findings
from deploy.check.observed import (
    CheckedKubelet,
    CheckedNode,
    CheckedServer,
    CheckedWorkload,
    Definition,
    Leader,
    Observed,
    PodWebhook,
    Unread,
)
from tests.support.schemas import problems, published


def workload(
    name: str, image: str, component: str = "", *arguments: str, wanted: int = 2, ready: int = 2
) -> CheckedWorkload:
    part = {"app.kubernetes.io/part-of": "headroom", "app.kubernetes.io/component": component}
    labels = part | {"app.kubernetes.io/version": "0.4.1"} if component else {}
    return CheckedWorkload(
        "Deployment", f"ns/{name}", labels, (f"registry.example.com:5000/{image}:1",), arguments, wanted, ready
    )


NODE = CheckedNode(
    "n1",
    measurable=True,
    ready=True,
    writers=frozenset({"headroom-manager"}),
    report_age_seconds=30.0,
    ahead_seconds=0.0,
)
MANAGER = workload("manager", "headroom", "manager", "--cloud-provider=aws", "--autoscaling-mode=enforce")
AGENT = workload("agent", "headroom", "agent")
KARPENTER = workload("karpenter", "controller")
HOOK = PodWebhook("headroom", sees_all_pods=False, failure_policy="Ignore", problem="")
NO_ANSWER = Unread("no answer")
WITH_SCHEDULER = replace(MANAGER, arguments=(*MANAGER.arguments, "--scheduler-name=headroom-scheduler"))
SOUND = Observed(
    here="0.4.0",
    namespace="headroom-system",
    server=CheckedServer("v1.36.0", 0.0),
    missing_rights=(),
    definition=Definition(keeps_predictions=True, served=("v1alpha1",), stored=("v1alpha1",)),
    pod_security="",
    workloads=(MANAGER, AGENT),
    leader=Leader("manager-0", 2.0),
    nodes=(NODE,),
    kubelets=(CheckedKubelet("n1", reports_pressure=True, refuses_cgroup_v1=True),),
    webhooks=(HOOK,),
    profiles=0,
    extender_requests=7,
)


def test_everything_is_good_where_nothing_is_amiss() -> None:
    found = findings(SOUND)
    assert {each.status for each in found} == {Verdict.GOOD}
    assert not [each.check for each in found if each.action]
    assert Report(found).has_passed


# What differs, and the check, status and words that follow.
CASES: dict[str, tuple[Observed, str, Verdict, str]] = {
    "no cluster": (replace(SOUND, server=NO_ANSWER), "kubernetes", Verdict.BAD, "no answer"),
    "an old cluster": (replace(SOUND, server=CheckedServer("v1.29.9", 0.0)), "kubernetes", Verdict.BAD, "v1.29.9"),
    "the oldest cluster": (replace(SOUND, server=CheckedServer("v1.30.0", 0.0)), "kubernetes", Verdict.GOOD, "v1.30.0"),
    "a cluster's own version": (
        replace(SOUND, server=CheckedServer("v1.31.2-gke.1", 0.0)),
        "kubernetes",
        Verdict.GOOD,
        "gke",
    ),
    "no version": (replace(SOUND, server=CheckedServer("new", 0.0)), "kubernetes", Verdict.UNKNOWN, "new"),
    "a slow clock": (replace(SOUND, server=CheckedServer("v1.36.0", -9.0)), "clock", Verdict.BAD, "9 s behind"),
    "a node's fast clock": (replace(SOUND, nodes=(replace(NODE, ahead_seconds=6.0),)), "clock", Verdict.BAD, "n1"),
    "rights": (
        replace(SOUND, missing_rights=("create daemonsets.apps",)),
        "rights",
        Verdict.BAD,
        "create daemonsets.apps",
    ),
    "baseline": (
        replace(SOUND, pod_security="baseline"),
        "pod security",
        Verdict.BAD,
        "headroom-system enforces baseline",
    ),
    "privileged": (replace(SOUND, pod_security="privileged"), "pod security", Verdict.GOOD, "admits"),
    "undefined": (replace(SOUND, definition=None), "definition", Verdict.UNKNOWN, "not defined yet"),
    "Koordinator's definition": (
        replace(SOUND, definition=Definition(keeps_predictions=False, served=("v1alpha1",), stored=("v1alpha1",))),
        "definition",
        Verdict.BAD,
        "drops status.prediction",
    ),
    "not installed": (replace(SOUND, workloads=()), "manager", Verdict.UNKNOWN, "not installed"),
    "two managers": (replace(SOUND, workloads=(MANAGER, MANAGER)), "manager", Verdict.BAD, "2 releases"),
    "pods that wait": (replace(SOUND, workloads=(replace(MANAGER, ready=1),)), "manager", Verdict.BAD, "1 of 2 pods"),
    "one minor apart": (replace(SOUND, here="0.5.0"), "agent", Verdict.GOOD, "0.4.1"),
    "two minors apart": (replace(SOUND, here="0.6.0"), "agent", Verdict.BAD, "0.6.0"),
    "a major apart": (replace(SOUND, here="1.4.0"), "agent", Verdict.BAD, "1.4.0"),
    "no leader": (replace(SOUND, leader=None), "leader", Verdict.UNKNOWN, "no manager has led"),
    "a leader that is gone": (replace(SOUND, leader=Leader("manager-0", 90.0)), "leader", Verdict.BAD, "90 s ago"),
    "a silent node": (
        replace(SOUND, nodes=(NODE, replace(NODE, name="n2", report_age_seconds=301.0))),
        "reports",
        Verdict.BAD,
        "1 of 2 nodes have not reported for 300 s: n2",
    ),
    "no report at all": (
        replace(SOUND, nodes=(replace(NODE, report_age_seconds=None),)),
        "reports",
        Verdict.UNKNOWN,
        "1 node",
    ),
    "a virtual node": (
        replace(SOUND, nodes=(NODE, replace(NODE, name="n2", measurable=False, report_age_seconds=None))),
        "reports",
        Verdict.GOOD,
        "1 node",
    ),
    "a node that is not ready": (
        replace(SOUND, nodes=(NODE, replace(NODE, name="n2", ready=False, report_age_seconds=None))),
        "reports",
        Verdict.GOOD,
        "1 node",
    ),
    "no kubelet": (replace(SOUND, kubelets=()), "kubelets", Verdict.UNKNOWN, "no node with a kubelet"),
    "no right to kubelets": (replace(SOUND, kubelets=(NO_ANSWER,)), "kubelets", Verdict.UNKNOWN, "no answer"),
    "one kubelet away": (replace(SOUND, kubelets=(*SOUND.kubelets, NO_ANSWER)), "kubelets", Verdict.BAD, "no answer"),
    "no pressure": (replace(SOUND, kubelets=(CheckedKubelet("n1", False, True),)), "pressure", Verdict.UNKNOWN, "n1"),
    "v2 without pressure": (
        replace(SOUND, kubelets=(CheckedKubelet("n1", False, True),)),
        "cgroup version",
        Verdict.GOOD,
        "v2",
    ),
    "cgroups of any version": (
        replace(SOUND, kubelets=(CheckedKubelet("n1", False, False),)),
        "cgroup version",
        Verdict.UNKNOWN,
        "n1",
    ),
    "no webhook": (replace(SOUND, webhooks=()), "webhook", Verdict.UNKNOWN, "registered"),
    "a webhook out of reach": (
        replace(SOUND, webhooks=(replace(HOOK, problem="refused"),)),
        "webhook",
        Verdict.BAD,
        "headroom (failurePolicy Ignore): refused",
    ),
    "profiles that cannot apply": (replace(SOUND, profiles=2), "profiles", Verdict.BAD, "2 ClusterColocationProfiles"),
    "no scheduler": (
        replace(SOUND, extender_requests=0),
        "scheduler extender",
        Verdict.UNKNOWN,
        "no scheduler has asked",
    ),
    "a second scheduler that never started": (
        replace(SOUND, workloads=(WITH_SCHEDULER, AGENT)),
        "second scheduler",
        Verdict.BAD,
        "headroom-scheduler has not started, so pods that name it wait",
    ),
    "a second scheduler that is silent": (
        replace(SOUND, workloads=(WITH_SCHEDULER, AGENT), scheduler=Leader("scheduler-0", 90.0)),
        "second scheduler",
        Verdict.BAD,
        "headroom-scheduler led last 90 s ago",
    ),
    "a second scheduler": (
        replace(SOUND, workloads=(WITH_SCHEDULER, AGENT), scheduler=Leader("scheduler-0", 2.0)),
        "second scheduler",
        Verdict.GOOD,
        "scheduler-0 leads and binds the pods that name headroom-scheduler",
    ),
    "another writer": (
        replace(SOUND, nodes=(replace(NODE, writers=frozenset({"headroom-manager", "koord-manager"})),)),
        "other writers",
        Verdict.BAD,
        "koord-manager writes",
    ),
    "no record of writers": (
        replace(SOUND, nodes=(replace(NODE, writers=frozenset()),)),
        "other writers",
        Verdict.UNKNOWN,
        "does not say",
    ),
    "koordlet": (replace(SOUND, workloads=(AGENT, workload("a", "koordlet"))), "other systems", Verdict.BAD, "ns/a"),
    "koordlet alone": (replace(SOUND, workloads=(workload("a", "koordlet"),)), "other systems", Verdict.GOOD, "ns/a"),
    "koord-manager": (
        replace(SOUND, workloads=(MANAGER, workload("k", "koord-manager"))),
        "other systems",
        Verdict.BAD,
        "ns/k",
    ),
    "two autoscalers": (
        replace(SOUND, workloads=(MANAGER, workload("ca", "cluster-autoscaler"))),
        "other systems",
        Verdict.BAD,
        "Cluster Autoscaler",
    ),
    "an autoscaler that was stopped": (
        replace(SOUND, workloads=(MANAGER, AGENT, workload("ca", "cluster-autoscaler", wanted=0, ready=0))),
        "agent",
        Verdict.GOOD,
        "0.4.1",
    ),
    "Karpenter beside AWS": (
        replace(SOUND, workloads=(MANAGER, KARPENTER)),
        "other systems",
        Verdict.BAD,
        "",
    ),
    "Karpenter as the cloud": (
        replace(SOUND, workloads=(replace(MANAGER, arguments=("--cloud-provider=karpenter",)), KARPENTER)),
        "other systems",
        Verdict.GOOD,
        "Karpenter",
    ),
}


@pytest.mark.parametrize(("seen", "check", "status", "words"), CASES.values(), ids=CASES.keys())
def test_what_differs_is_said_with_what_to_do(seen: Observed, check: str, status: Verdict, words: str) -> None:
    found = findings(seen)
    matching = [each for each in found if each.check == check]
    assert any(each.status is status and words in each.detail for each in matching), matching
    assert all(bool(each.action) is (each.status is Verdict.BAD) for each in found)
    assert Report(found).has_passed is all(each.status is not Verdict.BAD for each in found)


UNREAD = {
    "rights": replace(SOUND, missing_rights=NO_ANSWER),
    "definition": replace(SOUND, definition=NO_ANSWER),
    "pod security": replace(SOUND, pod_security=NO_ANSWER),
    "release": replace(SOUND, workloads=NO_ANSWER),
    "leader": replace(SOUND, leader=NO_ANSWER),
    "reports": replace(SOUND, nodes=NO_ANSWER),
    "webhook": replace(SOUND, webhooks=NO_ANSWER),
    "scheduler extender": replace(SOUND, extender_requests=NO_ANSWER),
    "second scheduler": replace(SOUND, workloads=(WITH_SCHEDULER, AGENT), scheduler=NO_ANSWER),
}


@pytest.mark.parametrize(("check", "seen"), UNREAD.items(), ids=UNREAD.keys())
def test_a_part_that_cannot_be_read_is_unknown_with_the_reason(check: str, seen: Observed) -> None:
    found = findings(seen)
    assert Finding(check, Verdict.UNKNOWN, "no answer") in found
    assert Report(found).has_passed


def test_who_wrote_a_tier_of_a_node_is_read_from_its_managed_fields() -> None:
    def entry(manager: str, part: str, field: str, subresource: str = "status") -> dict[str, object]:
        fields: dict[str, object] = {"f:status": {f"f:{part}": {f"f:{field}": {}}}}
        return {"manager": manager, "operation": "Update", "fieldsV1": fields, "subresource": subresource}

    managed = [
        entry("kubelet", "allocatable", "memory"),
        entry("headroom-manager", "allocatable", "kubernetes.io/mid-cpu"),
        entry("koord-manager", "capacity", "kubernetes.io/batch-memory"),
        {"manager": "kubectl-label", "fieldsV1": {"f:metadata": {"f:labels": {"f:a": {}}}}},
    ]
    assert set(reading.tier_writers({"managedFields": managed})) == {"headroom-manager", "koord-manager"}
    assert not set(reading.tier_writers({}))


def test_a_finding_is_a_line_and_what_to_do_is_below_it() -> None:
    report = Report([Finding("a", Verdict.GOOD, "well"), Finding("longer", Verdict.BAD, "amiss", "mend it")])
    assert command.rendered(report, "table").splitlines() == [
        "good  a       well",
        "bad   longer  amiss",
        "         do: mend it",
        "",
        "1 of 2 checks are bad",
    ]
    assert not list(problems(json.loads(command.rendered(report, "json")), published("check")))
