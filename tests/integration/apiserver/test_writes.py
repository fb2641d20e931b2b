"""Create, update, patch and delete: versions, conflicts, isolation of status, defaults."""

import pytest

from tests.integration.apiserver.conftest import JSON_PATCH, STRATEGIC, Api, config_map, pod

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def version(obj: dict[str, dict[str, str]]) -> int:
    return int(obj["metadata"]["resourceVersion"])


def test_versions_rise_across_kinds(api: Api, namespace: str, unique: str) -> None:
    first = api.ok("POST", f"{namespace}/configmaps", config_map("a"))
    second = api.ok("POST", LEASES, {"metadata": {"name": unique}})
    third = api.patch(f"{namespace}/configmaps/a", {"data": {"a": "b"}})
    assert version(first) < version(second) < version(third)


def test_a_write_that_changes_nothing_keeps_the_version(api: Api, namespace: str) -> None:
    created = api.ok("POST", f"{namespace}/configmaps", config_map("a", x="1"))
    path = f"{namespace}/configmaps/a"
    assert version(api.patch(path, {"data": {"x": "1"}})) == version(created)
    assert version(api.ok("PUT", path, created)) == version(created)


def test_a_stale_version_is_a_conflict(api: Api, namespace: str) -> None:
    stale = api.ok("POST", f"{namespace}/configmaps", config_map("a", x="1"))
    path = f"{namespace}/configmaps/a"
    api.patch(path, {"data": {"x": "2"}})
    status = api.fails(409, "PUT", path, stale | {"data": {"x": "3"}})
    assert status["reason"] == "Conflict"
    assert status["message"] == (
        'Operation cannot be fulfilled on configmaps "a": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    patch = {"metadata": {"resourceVersion": stale["metadata"]["resourceVersion"]}}
    assert api.fails(409, "PATCH", path, patch, "application/merge-patch+json")["reason"] == "Conflict"


def test_some_kinds_insist_on_a_version_in_updates(api: Api, unique: str) -> None:
    api.ok("POST", LEASES, {"metadata": {"name": unique}})
    status = api.fails(422, "PUT", f"{LEASES}/{unique}", {"metadata": {"name": unique}})
    assert "must be specified for an update" in status["message"]


def test_an_object_exists_once(api: Api, namespace: str) -> None:
    api.ok("POST", f"{namespace}/configmaps", config_map("a"))
    assert api.fails(409, "POST", f"{namespace}/configmaps", config_map("a"))["reason"] == "AlreadyExists"


def test_generated_names_differ_and_server_fields_are_the_servers(api: Api, namespace: str) -> None:
    body = {"metadata": {"generateName": "job-", "uid": "mine", "creationTimestamp": "2000-01-01T00:00:00Z"}}
    made = [api.ok("POST", f"{namespace}/configmaps", body)["metadata"] for _ in range(3)]
    assert len({meta["name"] for meta in made}) == 3
    assert all(meta["name"].startswith("job-") and len(meta["name"]) == 9 for meta in made)
    assert all(meta["uid"] != "mine" and not meta["creationTimestamp"].startswith("2000") for meta in made)


def test_the_main_resource_and_status_do_not_write_each_other(api: Api, unique: str) -> None:
    node = {"metadata": {"name": unique}, "status": {"capacity": {"cpu": "4"}}}
    created = api.ok("POST", "/api/v1/nodes", node)
    path = f"/api/v1/nodes/{unique}"
    assert created["status"]["allocatable"] == {"cpu": "4"}
    main = api.patch(path, {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": "8"}}})
    assert (main["spec"]["unschedulable"], main["status"]["capacity"]["cpu"]) == (True, "4")
    status = api.patch(f"{path}/status", {"spec": {"unschedulable": False}, "status": {"capacity": {"cpu": "8"}}})
    assert (status["spec"]["unschedulable"], status["status"]["capacity"]["cpu"]) == (True, "8")
    api.ok("DELETE", path)


@pytest.mark.embedded_only("a real one keeps them in canonical form")
def test_quantities_stay_as_they_were_written(api: Api, unique: str) -> None:
    given = {"cpu": 0.5, "memory": "2048Mi", "kubernetes.io/mid-cpu": "16000"}
    node = api.ok("POST", "/api/v1/nodes", {"metadata": {"name": unique}, "status": {"capacity": given}})
    assert node["status"]["capacity"] == given
    wrong: object
    for wrong in ("1 core", True, {}):
        api.fails(400, "POST", "/api/v1/nodes", {"metadata": {"name": "a"}, "status": {"capacity": {"cpu": wrong}}})
    api.ok("DELETE", f"/api/v1/nodes/{unique}")


def test_a_pod_gets_its_defaults(api: Api, namespace: str) -> None:
    made = api.ok("POST", f"{namespace}/pods", pod("a", priorityClassName="system-node-critical"))
    spec, status = made["spec"], made["status"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"], spec["priority"]) == (
        "Always",
        30,
        2000001000,
    )
    assert (status["phase"], status["qosClass"], made["metadata"]["generation"]) == ("Pending", "BestEffort", 1)


def test_a_pods_spec_stays_but_for_its_images(api: Api, namespace: str) -> None:
    api.ok("POST", f"{namespace}/pods", pod("a"))
    path = f"{namespace}/pods/a"
    patched = api.patch(path, {"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}, STRATEGIC)
    assert patched["spec"]["containers"][0]["image"] == "busybox:2"
    assert patched["metadata"]["generation"] == 2
    status = api.fails(422, "PATCH", path, {"spec": {"nodeName": "n"}}, STRATEGIC)
    assert "pod updates may not change fields other than" in status["message"]


def test_a_dry_run_says_what_would_be_and_does_nothing(api: Api, namespace: str) -> None:
    shown = api.ok("POST", f"{namespace}/configmaps?dryRun=All", config_map("a", x="1"))
    assert shown["data"] == {"x": "1"}
    assert api.gone(f"{namespace}/configmaps/a")
    kept = api.ok("POST", f"{namespace}/configmaps", config_map("a", x="1"))
    assert api.patch(f"{namespace}/configmaps/a?dryRun=All", {"data": {"x": "2"}})["data"] == {"x": "2"}
    api.ok("DELETE", f"{namespace}/configmaps/a?dryRun=All")
    assert api.ok("GET", f"{namespace}/configmaps/a") == kept


def test_a_json_patch_applies_whole_or_not_at_all(api: Api, namespace: str) -> None:
    api.ok("POST", f"{namespace}/configmaps", config_map("a", x="1"))
    path = f"{namespace}/configmaps/a"
    steps = [
        {"op": "test", "path": "/data/x", "value": "1"},
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": "/metadata/annotations/y~1z", "value": "2"},
        {"op": "copy", "from": "/data/x", "path": "/data/w"},
        {"op": "remove", "path": "/data/x"},
    ]
    patched = api.patch(path, steps, JSON_PATCH)
    assert (patched["data"], patched["metadata"]["annotations"]) == ({"w": "1"}, {"y/z": "2"})
    status = api.fails(
        422,
        "PATCH",
        path,
        [{"op": "remove", "path": "/data/w"}, {"op": "test", "path": "/data/w", "value": "9"}],
        JSON_PATCH,
    )
    assert (status["reason"], api.ok("GET", path)["data"]) == ("Invalid", {"w": "1"})


def test_a_strategic_patch_merges_lists_by_their_keys(api: Api, unique: str) -> None:
    conditions = [{"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "False"}]
    taints = [{"key": "a", "effect": "NoSchedule"}]
    body = {"metadata": {"name": unique}, "spec": {"taints": taints}, "status": {"conditions": conditions}}
    api.ok("POST", "/api/v1/nodes", body)
    path = f"/api/v1/nodes/{unique}"
    patched = api.patch(f"{path}/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, STRATEGIC)
    assert {c["type"]: c["status"] for c in patched["status"]["conditions"]} == {
        "Ready": "True",
        "DiskPressure": "False",
    }
    replaced = api.patch(path, {"spec": {"taints": [{"key": "b", "effect": "NoExecute"}]}}, STRATEGIC)
    assert [taint["key"] for taint in replaced["spec"]["taints"]] == ["b"]  # taints are atomic
    api.ok("DELETE", path)


def test_deletion_holds_to_its_preconditions(api: Api, namespace: str) -> None:
    made = api.ok("POST", f"{namespace}/configmaps", config_map("a"))
    path = f"{namespace}/configmaps/a"
    status = api.fails(409, "DELETE", path, {"preconditions": {"uid": "other"}})
    assert "the UID in the precondition (other) does not match the UID in record" in status["message"]
    done = api.ok("DELETE", path, {"preconditions": {"uid": made["metadata"]["uid"]}})
    assert (done["kind"], done["status"], done["details"]["uid"]) == ("Status", "Success", made["metadata"]["uid"])


def test_a_node_metric_counts_changes_of_its_spec_only(api: Api, unique: str) -> None:
    path = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
    api.ok(
        "POST", path, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": unique}}
    )
    status = api.patch(f"{path}/{unique}/status", {"status": {"updateTime": "2026-01-01T00:00:00Z"}})
    assert status["metadata"]["generation"] == 1
    spec = api.patch(
        f"{path}/{unique}", {"spec": {"metricCollectPolicy": {"reportIntervalSeconds": 30}}, "status": None}
    )
    assert (spec["metadata"]["generation"], spec["status"]) == (2, {"updateTime": "2026-01-01T00:00:00Z"})
