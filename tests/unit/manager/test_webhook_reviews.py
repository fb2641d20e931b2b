"""A review is answered whatever is in it, and what is no review is told so."""

import asyncio
import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from deploy.local.apiserver import patching
from manager.nodeside.webhook import profiles, reviews, server
from manager.nodeside.webhook.configmap import ConfigAdmission
from manager.nodeside.webhook.limits import LimitRules
from manager.nodeside.webhook.pods import PodAdmission, Translation
from manager.nodeside.webhook.profiles import PriorityClassObject, Profile
from manager.nodeside.webhook.reviews import AdmissionAnswer, AdmissionRequest
from manager.pods import PodRecord
from shared import names
from shared.api.profile import ClusterColocationProfile
from shared.errors import HeadroomError
from shared.names import PriorityClass
from shared.quantity import Resources
from tests.unit.manager.objects import node

CLASSES = frozenset({PriorityClass.MID, PriorityClass.BATCH})
KOORDINATOR = Translation(CLASSES)
OWN_CLASSES = {PriorityClass.MID: "headroom-mid", PriorityClass.BATCH: "headroom-batch"}
KUBELET = Translation(CLASSES, LimitRules(), OWN_CLASSES)
MID = {names.LABEL_PRIORITY_CLASS: "koord-mid"}
BATCH = {names.LABEL_PRIORITY_CLASS: "koord-batch"}
NATIVE = {"requests": {"cpu": "500m", "memory": "1Gi"}}
LIMITED = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
TRANSLATED = {"requests": {"kubernetes.io/mid-cpu": "500", "kubernetes.io/mid-memory": "1Gi"}}


class Known:
    """What of a cluster is known, as a test says it."""

    def __init__(self, *specs: dict[str, Any], namespace: dict[str, str] | None = None) -> None:
        self._profiles = [
            profiles.accepted(msgspec.convert({"metadata": {"name": f"p{index}"}, **each}, ClusterColocationProfile))
            for index, each in enumerate(specs)
        ]
        self._namespace = namespace
        self.missing: list[str] = []
        self.classes = {
            "koord-mid": PriorityClassObject(value=7000),
            "headroom-mid": PriorityClassObject(value=-5, preemption_policy="Never"),
            "of-the-cluster": PriorityClassObject(value=1000, global_default=True),
            "chosen": PriorityClassObject(value=2000),
        }

    def profiles(self) -> Sequence[Profile]:
        return self._profiles

    def priority_class(self, name: str) -> PriorityClassObject | None:
        return self.classes.get(name)

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        if self._namespace is None:
            raise HeadroomError(f"{name} cannot be read")
        return self._namespace

    def unread(self) -> list[str]:
        return self.missing


def pod(resources: object = NATIVE, labels: object = None, **spec: object) -> dict[str, Any]:
    metadata = {"name": "p", "labels": MID if labels is None else labels}
    return {"metadata": metadata, "spec": {"containers": [{"name": "c", "resources": resources}], **spec}}


def asked(
    obj: object, resource: str = "pods", *, old: object = None, operation: str = "", **more: str
) -> AdmissionRequest:
    request = {
        "uid": "u1",
        "operation": operation or ("CREATE" if old is None else "UPDATE"),
        "resource": {"group": "", "version": "v1", "resource": resource},
        "namespace": "ns",
        "object": obj,
        "oldObject": old,
        **more,
    }
    return reviews.decode(json.dumps(review(request)).encode())


def review(request: object) -> dict[str, object]:
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def admitted(
    obj: dict[str, Any], known: Known | None = None, becomes: Translation = KOORDINATOR
) -> tuple[dict[str, Any], tuple[str, ...]]:
    answer = PodAdmission(known or Known(), becomes).review(asked(obj))
    assert answer.denied is None
    return patching.json_patch(obj, answer.operations), answer.warnings


def resources_of(obj: dict[str, Any]) -> Any:
    return obj["spec"]["containers"][0]["resources"]


def test_a_mid_pod_is_translated_and_others_are_let_alone() -> None:
    changed, warnings = admitted(pod())
    assert resources_of(changed) == TRANSLATED
    assert warnings == ()
    for labels in ({}, {names.LABEL_PRIORITY_CLASS: "koord-prod"}, {names.LABEL_PRIORITY_CLASS: "koord-free"}):
        assert admitted(pod(labels=labels)) == (pod(labels=labels), ())


def test_a_pod_of_a_class_that_nobody_offers_keeps_its_requests() -> None:
    assert resources_of(admitted(pod(labels=BATCH))[0]) != NATIVE
    only_mid = Translation(frozenset({PriorityClass.MID}))
    assert admitted(pod(labels=BATCH), becomes=only_mid) == (pod(labels=BATCH), ())
    assert resources_of(admitted(pod(), becomes=only_mid)[0]) == TRANSLATED


def test_a_profile_makes_a_pod_mid() -> None:
    known = Known({"spec": {"selector": {"matchLabels": {"app": "a"}}, "priorityClassName": "koord-mid"}})
    changed, _ = admitted(pod(labels={"app": "a"}), known)
    assert resources_of(changed) == TRANSLATED
    assert changed["spec"]["priority"] == 7000
    assert admitted(pod(labels={"app": "b"}), known)[0] == pod(labels={"app": "b"})


def test_a_profile_or_the_pod_itself_can_keep_requests_as_they_are() -> None:
    skip = {names.ANNOTATION_SKIP_UPDATE_RESOURCES: "true"}
    changed, _ = admitted(pod(), Known({"metadata": {"name": "a", "annotations": skip}, "spec": {"qosClass": "LS"}}))
    assert changed["metadata"]["labels"] == MID | {names.LABEL_QOS_CLASS: "LS"}
    assert resources_of(changed) == NATIVE
    own = pod()
    own["metadata"]["annotations"] = skip
    assert admitted(own) == (own, ())


def test_a_profile_that_cannot_be_applied_is_passed_over_with_a_warning() -> None:
    known = Known(
        {"spec": {"priorityClassName": "of-nobody"}},
        {"spec": {"patch": {"spec": {"containers": "none"}}}},
        {"spec": {"patch": {"spec": None}}},
        {"spec": {"labels": {"good": "one"}}},
    )
    changed, warnings = admitted(pod(), known)
    assert changed["metadata"]["labels"] == MID | {"good": "one"}
    assert resources_of(changed) == TRANSLATED
    assert ["of-nobody" in warnings[0], "is no pod" in warnings[1], "is no pod" in warnings[2]] == [True] * 3


def test_a_pod_without_a_name_is_drawn_once_however_often_it_is_asked_about() -> None:
    known = Known({"spec": {"labels": {"taken": "yes"}, "probability": "50%"}})

    def asked_twice(number: int) -> list[bool]:
        document = pod()
        del document["metadata"]["name"]
        taken = []
        for turn in ("first", "second"):
            answer = PodAdmission(known, KOORDINATOR).review(asked(document, uid=f"{turn}-{number}"))
            document = patching.json_patch(document, answer.operations)
            taken.append("taken" in document["metadata"]["labels"])
        return taken

    drawn = [asked_twice(number) for number in range(200)]
    assert all(first == second for first, second in drawn)
    assert 60 < sum(first for first, _ in drawn) < 140
    assert names.ANNOTATION_PROFILES_DRAWN_BY not in admitted(pod(), known)[0]["metadata"].get("annotations", {})


def test_a_namespace_that_cannot_be_read_costs_the_profiles_and_not_the_translation() -> None:
    changed, warnings = admitted(pod(), Known({"spec": {"namespaceSelector": {}, "labels": {"a": "b"}}}))
    assert resources_of(changed) == TRANSLATED
    assert warnings == ("no profile was applied: ns cannot be read",)


def test_what_has_not_been_read_yet_is_told() -> None:
    known = Known()
    known.missing = ["profiles"]
    assert admitted(pod(), known)[1] == ("profiles have not been read yet",)


@pytest.mark.parametrize(
    "bad", [pod({"requests": {"cpu": "lots"}}), pod("none"), pod(labels=5), {"metadata": {}}, [], None, "text"]
)
def test_a_pod_that_means_nothing_stays_as_it_is_with_a_warning(bad: Any) -> None:
    answer = PodAdmission(Known(), KOORDINATOR).review(asked(bad))
    assert answer.denied is None
    assert answer.operations == []
    assert len(answer.warnings) == 1


def test_requests_of_a_pod_as_a_whole_cannot_be_translated() -> None:
    document = pod(resources={"requests": {"cpu": "1"}})
    changed, warnings = admitted(document)
    assert changed != document
    document["spec"]["resources"] = {"limits": {"cpu": "2"}}
    changed, warnings = admitted(document)
    assert changed == document
    assert "spec.resources" in warnings[0]


def test_a_mirror_pod_shows_what_runs_and_is_let_alone() -> None:
    mirror = pod()
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    assert PodAdmission(Known({"spec": {"labels": {"a": "b"}}}), KOORDINATOR).review(asked(mirror)) == AdmissionAnswer()


@pytest.mark.parametrize(
    "other", [{"resource": "nodes"}, {"operation": "UPDATE"}, {"operation": "DELETE"}, {"subResource": "status"}]
)
def test_nothing_is_changed_of_what_is_not_a_new_pod(other: dict[str, Any]) -> None:
    assert PodAdmission(Known(), KOORDINATOR).review(asked(pod(), **other)) == AdmissionAnswer()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_whatever_stands_in_a_pod_it_is_answered(junk: object) -> None:
    for document in (
        junk,
        {"metadata": junk},
        {"metadata": {"labels": MID}, "spec": junk},
        pod(junk),
        pod(labels=junk),
    ):
        assert PodAdmission(Known(), KOORDINATOR).review(asked(document)).denied is None


# The configuration


def config_map(text: str | None, **data: str) -> dict[str, Any]:
    keys = data if text is None else {names.CONFIG_KEY_COLOCATION: text, **data}
    return {"metadata": {"name": "config", "namespace": "ns"}, "data": keys}


def judged(new: object, old: object = None, name: str = "config") -> AdmissionAnswer:
    nodes = [node("both", labels={"pool": "a", "zone": "z"}), node("one", labels={"pool": "a"})]
    return ConfigAdmission("ns", "config", lambda: nodes).review(asked(new, "configmaps", old=old, name=name))


def node_configs(*selectors: object, **strategy: object) -> str:
    return json.dumps({"enable": True, "nodeConfigs": [{"nodeSelector": each, **strategy} for each in selectors]})


def labelled(**labels: str) -> dict[str, object]:
    return {"matchLabels": labels}


def test_only_a_changed_key_of_that_one_config_map_is_judged() -> None:
    bad = config_map('{"nope": 1}')
    assert judged(bad).denied
    assert judged(bad, old=config_map("{}")).denied
    assert judged(bad, old=config_map('{"nope": 1}', other="key")) == AdmissionAnswer()
    assert judged(bad, name="another") == AdmissionAnswer()
    assert judged(config_map(None, other="key")) == AdmissionAnswer()


def test_selectors_that_meet_on_a_node_of_the_cluster_are_worth_a_warning() -> None:
    answer = judged(config_map(node_configs(labelled(pool="a"), labelled(zone="z"))))
    assert answer.denied is None
    assert answer.warnings == ("Node both is selected by nodeConfigs[0] and nodeConfigs[1]; the first one counts",)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (
            '{"midReclaimMode": "Static"}',
            "midReclaimMode: 'Static': counts as dynamic, since it is none of dynamic, static",
        ),
        (
            '{"memoryCalculatePolicy": "usgae"}',
            "memoryCalculatePolicy: 'usgae': counts as usage, since it is none of usage, request, maxUsageRequest",
        ),
        (
            '{"cpuCalculatePolicy": "request"}',
            "cpuCalculatePolicy: 'request': counts as usage, since it is none of usage, maxUsageRequest",
        ),
        (
            node_configs(labelled(pool="b"), midReclaimMode="Static"),
            "nodeConfigs[0].midReclaimMode: 'Static': counts as dynamic, since it is none of dynamic, static",
        ),
    ],
)
def test_a_value_that_counts_as_another_is_allowed_with_a_warning(text: str, warning: str) -> None:
    assert judged(config_map(text)) == AdmissionAnswer(warnings=(warning,))


def test_what_a_node_config_only_inherits_is_warned_of_once() -> None:
    text = json.dumps({"midReclaimMode": "Static", "nodeConfigs": [{"nodeSelector": labelled(pool="b")}]})
    assert len(judged(config_map(text)).warnings) == 1


@pytest.mark.parametrize("policy", ["usage", "request", "maxUsageRequest"])
def test_values_with_a_meaning_are_not_worth_a_warning(policy: str) -> None:
    text = json.dumps({"memoryCalculatePolicy": policy, "cpuCalculatePolicy": "maxUsageRequest"})
    assert judged(config_map(text)) == AdmissionAnswer()
    for mode in ("static", "dynamic", ""):
        assert judged(config_map(json.dumps({"midReclaimMode": mode}))) == AdmissionAnswer()


def thresholds_map(strategy: object) -> dict[str, Any]:
    return config_map(None, **{names.CONFIG_KEY_THRESHOLDS: json.dumps(strategy)})


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ({"nope": {}}, "resource-threshold-config: nope: {}: expected clusterStrategy and nodeStrategies alone"),
        ({"clusterStrategy": {"enabled": True}}, "resource-threshold-config: clusterStrategy"),
        (
            {"clusterStrategy": {"memoryEvictThresholdPercent": 60, "memoryEvictLowerPercent": 60}},
            "clusterStrategy.memoryEvictLowerPercent: 60: must be less than memoryEvictThresholdPercent, 60",
        ),
        (
            {"nodeStrategies": [{"nodeSelector": {}, "enable": True}]},
            "nodeStrategies[0].nodeSelector: {}: must select nodes by a label at least",
        ),
    ],
)
def test_thresholds_that_mean_nothing_are_denied_by_field_and_value(strategy: object, said: str) -> None:
    denied = judged(thresholds_map(strategy)).denied
    assert denied is not None
    assert denied.startswith("ConfigMap ns/config resource-threshold-config")
    assert said in denied


def test_thresholds_are_judged_when_they_change_and_with_what_else_is_wrong() -> None:
    good = {"clusterStrategy": {"enable": True, "evictEnabled": True, "memoryEvictThresholdPercent": 75}}
    assert judged(thresholds_map(good)) == AdmissionAnswer()
    bad = thresholds_map({"nope": 1})
    assert judged(bad, old=bad) == AdmissionAnswer()
    bad["data"] |= {names.CONFIG_KEY_COLOCATION: '{"no": 1}'}
    denied = judged(bad, old=config_map("{}")).denied
    assert denied is not None
    assert [key in denied for key in ("colocation-config: no", "resource-threshold-config: nope")] == [True, True]


def test_a_node_that_several_threshold_strategies_select_is_warned_of() -> None:
    both = [{"nodeSelector": labelled(pool="a")}, {"nodeSelector": labelled(zone="z")}]
    (warning,) = judged(thresholds_map({"nodeStrategies": both})).warnings
    assert warning.endswith("is selected by nodeStrategies[0] and nodeStrategies[1]; the first one counts")


# The wire


class Served:
    """The application, asked in process as the API server asks it."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        webhooks = {"pods": PodAdmission(Known(), KOORDINATOR).review, "fails": self.fail}
        self.app = server.application(webhooks, server.WebhookCounters(self.registry))

    def fail(self, _: AdmissionRequest) -> AdmissionAnswer:
        raise ZeroDivisionError

    async def post(self, path: str, body: bytes, **headers: str) -> httpx.Response:
        transport = httpx.ASGITransport(self.app)
        async with httpx.AsyncClient(transport=transport, base_url="https://webhook") as http:
            return await http.post(path, content=body, headers=headers)

    def asked(self, path: str, body: bytes, **headers: str) -> httpx.Response:
        return asyncio.run(self.post(path, body, **headers))

    def counted(self, outcome: str, webhook: str = "pods") -> float | None:
        labels = {"webhook": webhook, "outcome": outcome}
        return self.registry.get_sample_value("headroom_manager_webhook_reviews_total", labels)


def body_of(obj: object) -> bytes:
    resource = {"group": "", "version": "v1", "resource": "pods"}
    return json.dumps(review({"uid": "u1", "operation": "CREATE", "resource": resource, "object": obj})).encode()


def test_an_answer_carries_the_uid_and_a_json_patch() -> None:
    served = Served()
    answer = served.asked("/pods", body_of(pod())).json()
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u1", True, "JSONPatch")
    assert resources_of(patching.json_patch(pod(), json.loads(base64.b64decode(response["patch"])))) == TRANSLATED
    assert served.asked("/pods", body_of(pod(labels={}))).json()["response"] == {"uid": "u1", "allowed": True}
    assert (served.counted("mutated"), served.counted("unchanged")) == (1, 1)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"\xff\xfe",
        b"{}",
        b"[]",
        json.dumps(review(None)).encode(),
        json.dumps(review({"uid": "", "operation": "CREATE", "resource": {}})).encode(),
        json.dumps({**review({}), "apiVersion": "admission.k8s.io/v1beta1"}).encode(),
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_review_is_told_so(body: bytes) -> None:
    served = Served()
    assert served.asked("/pods", body).status_code == 400
    assert served.counted("refused") == 1


def test_a_body_that_is_too_large_is_not_read_to_its_end() -> None:
    served = Served()
    assert served.asked("/pods", b" " * (server.MAX_BODY_BYTES + 1)).status_code == 413
    assert served.counted("refused") == 1


def test_an_error_of_our_own_allows_the_object_as_it_is_and_is_counted() -> None:
    served = Served()
    response = served.asked("/fails", body_of(pod())).json()["response"]
    assert response["allowed"] is True
    assert "patch" not in response
    assert "internal error" in response["warnings"][0]
    assert served.counted("error", "fails") == 1
    assert served.registry.get_sample_value("headroom_manager_webhook_errors_total", {"webhook": "fails"}) == 1


def test_a_denial_is_a_status_that_people_can_read() -> None:
    encoded = json.loads(reviews.encode("u1", AdmissionAnswer(denied="x" * 5000, warnings=("a\nb",))))["response"]
    assert encoded["allowed"] is False
    assert encoded["status"]["code"] == 403
    assert len(encoded["status"]["message"]) == reviews.MAX_TEXT
    assert encoded["warnings"] == ["a b"]


def test_a_mid_pod_of_no_priority_gets_one_below_that_of_prod_pods_of_none() -> None:
    for spec in ({}, {"priority": 0}, {"priority": 1000, "priorityClassName": "of-the-cluster"}):
        changed, warnings = admitted(pod(LIMITED, **spec), becomes=KUBELET)
        assert warnings == ()
        chosen = {"priorityClassName": "headroom-mid", "priority": -5, "preemptionPolicy": "Never"}
        assert {key: changed["spec"][key] for key in chosen} == chosen
        assert admitted(changed, becomes=KUBELET) == (changed, ())
    for spec in ({"priority": 7100}, {"priority": 2000, "priorityClassName": "chosen"}):
        changed, _ = admitted(pod(LIMITED, **spec), becomes=KUBELET)
        assert {key: value for key, value in changed["spec"].items() if key != "containers"} == spec


def test_a_priority_class_that_is_not_there_is_told_and_costs_the_pod_nothing_else() -> None:
    changed, warnings = admitted(pod(LIMITED, BATCH), becomes=KUBELET)
    assert warnings == ("there is no PriorityClass headroom-batch, so the pod keeps its priority",)
    assert "priorityClassName" not in changed["spec"]
    assert names.BATCH_CPU in str(resources_of(changed))


def test_who_asks_for_mid_or_names_its_priority_class_is_labelled_for_others_to_see() -> None:
    asking = pod({"requests": {names.MID_CPU: "500"}, "limits": {"cpu": "1", "memory": "1Gi"}}, labels={})
    naming = pod(LIMITED, {}, priorityClassName="headroom-mid", priority=-5)
    for document in (asking, naming):
        changed, _ = admitted(document, becomes=KUBELET)
        assert changed["metadata"]["labels"] == MID
        assert names.MID_CPU in resources_of(changed)["requests"]
        assert resources_of(changed)["requests"]["cpu"] == "0"
        assert admitted(changed, becomes=KUBELET) == (changed, ())
    own = {names.LABEL_PRIORITY_CLASS: "gold"}
    assert (
        admitted(pod(asking["spec"]["containers"][0]["resources"], own), becomes=KUBELET)[0]["metadata"]["labels"]
        == own
    )


def test_a_pod_whose_request_is_above_its_limit_is_left_for_the_api_server_to_refuse() -> None:
    bad = pod({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})
    changed, warnings = admitted(bad, becomes=KUBELET)
    assert changed == bad
    assert warnings == ("requests stay as they are: container c asks for 2 of cpu, its limit is 1",)


def test_a_pod_beyond_what_its_namespace_may_hold_is_denied_with_the_reason() -> None:
    asked_about: list[tuple[str, str, Resources]] = []

    def why(namespace: str, record: PodRecord) -> str | None:
        asked_about.append((namespace, record.key, record.held))
        return "namespace ns may hold less" if record.held != Resources() else None

    admission = PodAdmission(Known(), KUBELET, why)
    denied = admission.review(asked(pod(LIMITED), name="p"))
    assert (denied.denied, denied.operations) == ("namespace ns may hold less", [])
    assert admission.review(asked(pod(LIMITED, labels={}))).denied is None
    assert asked_about == [("ns", "ns/p", Resources(500, 1 << 30)), ("ns", "ns/", Resources())]


def test_a_pod_that_requests_a_tier_directly_is_bounded_though_it_skips_the_translation() -> None:
    requests = {names.MID_CPU: "200", names.MID_MEMORY: "64Mi"}
    direct = pod({"requests": requests, "limits": requests})
    direct["metadata"]["annotations"] = {names.ANNOTATION_SKIP_UPDATE_RESOURCES: "true"}
    changed, _ = admitted(direct, becomes=KUBELET)
    found = resources_of(changed)
    assert found["requests"] == requests | {"cpu": "0", "memory": "0"}
    assert found["limits"] == requests | {"cpu": "200m", "memory": "64Mi"}
    native = pod()
    native["metadata"]["annotations"] = direct["metadata"]["annotations"]
    assert resources_of(admitted(native, becomes=KUBELET)[0]) == resources_of(native)


DIRECT = {"requests": {names.MID_CPU: "4000", names.MID_MEMORY: "64Mi"}}


def test_a_pod_that_requests_a_tier_directly_is_bounded_beside_a_profile_that_skips_the_translation() -> None:
    skipping = {"metadata": {"annotations": {names.ANNOTATION_SKIP_UPDATE_RESOURCES: "true"}}, "spec": {}}
    known = Known()
    known._profiles = [profiles.accepted(msgspec.convert(skipping, ClusterColocationProfile))]
    changed, _ = admitted(pod(DIRECT), known, becomes=KUBELET)
    assert resources_of(changed)["limits"] == {"cpu": "4", "memory": "64Mi"}
    assert resources_of(admitted(pod(), known, becomes=KUBELET)[0]) == NATIVE


@pytest.mark.parametrize(
    ("labels", "spec", "said"),
    [
        ({names.LABEL_PRIORITY_CLASS: "koord-prod"}, {}, "a pod of class koord-prod cannot request"),
        ({names.LABEL_PRIORITY_CLASS: "koord-free"}, {}, "a pod of class koord-free cannot request"),
        ({}, {"priority": 9500}, "a pod of class koord-prod cannot request"),
        (MID, {"resources": {"requests": {"cpu": "10m"}}}, "cpu and memory in spec.resources cannot stand beside"),
        ({}, {"resources": {"limits": {"memory": "1Gi"}}}, "cpu and memory in spec.resources cannot stand beside"),
    ],
)
def test_a_pod_that_requests_a_tier_where_nothing_could_bound_it_is_denied_with_the_reason(
    labels: dict[str, str], spec: dict[str, Any], said: str
) -> None:
    direct, native = pod(DIRECT, labels), pod(NATIVE, labels)
    for each in (direct, native):
        each["spec"] |= spec
    denied = PodAdmission(Known(), KUBELET).review(asked(direct))
    assert denied.denied is not None
    assert said in denied.denied
    assert f"{names.MID_CPU} and {names.MID_MEMORY}" in denied.denied
    assert denied.operations == []
    for becomes in (KOORDINATOR, Translation(frozenset({PriorityClass.BATCH}), LimitRules())):
        assert PodAdmission(Known(), becomes).review(asked(direct)).denied is None
    assert PodAdmission(Known(), KUBELET).review(asked(native)).denied is None
