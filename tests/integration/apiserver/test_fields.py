"""Bodies of built-in kinds: what is unknown, comes twice or is of the wrong type, and what is stored of the rest."""

from typing import Any

import httpx
import pytest

from tests.integration.apiserver.conftest import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, pod

PODS = "/api/v1/namespaces/default/pods?dryRun=All"
CM = "/api/v1/namespaces/default/configmaps"
YAML = "application/yaml"
UNKNOWN = pod("a", foo=1) | {"bar": 2}
TWICE = (
    '{"metadata":{"name":"a","name":"a"},"spec":{"containers":[{"name":"c","image":"i:1","image":"j:1"}],'
    '"automountServiceAccountToken":false}}'
)
TWICE_IN_YAML = "metadata:\n  name: a\n  name: a\nspec:\n  containers: [{name: c, image: i, foo: 1}]\n"


def warnings_of(response: httpx.Response) -> set[str]:
    texts = (text.removeprefix('299 - "').removesuffix('"') for text in response.headers.get_list("warning"))
    return {text.replace('\\"', '"') for text in texts}


@pytest.mark.parametrize(
    ("body", "media_type", "complaints"),
    [
        (UNKNOWN, "application/json", ['unknown field "bar"', 'unknown field "spec.foo"']),
        (TWICE, "application/json", ['duplicate field "metadata.name"', 'duplicate field "spec.containers[0].image"']),
        (
            TWICE_IN_YAML,
            YAML,
            ['line 3: key "name" already set in map', 'unknown field "spec.containers[0].foo"'],
        ),
    ],
    ids=["unknown", "twice", "twice in YAML"],
)
def test_unknown_and_repeated_fields_are_refused_warned_of_or_ignored(
    api: Api, body: Any, media_type: str, complaints: list[str]
) -> None:
    refused = api.fails(400, "POST", f"{PODS}&fieldValidation=Strict", body, media_type)
    assert refused["message"].startswith('Pod in version "v1" cannot be handled as a Pod: strict decoding error: ')
    assert all(complaint in refused["message"] for complaint in complaints)
    for asked in ("", "&fieldValidation=Warn"):
        warned = api.call("POST", PODS + asked, body, media_type)
        assert (warned.status_code, warnings_of(warned)) == (201, set(complaints))
        assert "foo" not in warned.json()["spec"]
        assert "bar" not in warned.json()
    ignored = api.call("POST", f"{PODS}&fieldValidation=Ignore", body, media_type)
    assert (ignored.status_code, warnings_of(ignored)) == (201, set())


@pytest.mark.parametrize("media_type", [MERGE, STRATEGIC])
def test_patches_with_unknown_fields_are_refused_or_warned_of(api: Api, namespace: str, media_type: str) -> None:
    path = f"{namespace}/configmaps/a"
    api.ok("POST", f"{namespace}/configmaps", {"metadata": {"name": "a"}})
    warned = api.call("PATCH", path, {"foo": 1, "data": {"a": "1"}}, media_type)
    assert warnings_of(warned) == {'unknown field "foo"'}
    assert ("foo" in warned.json(), warned.json()["data"]) == (False, {"a": "1"})
    refused = api.fails(422, "PATCH", f"{path}?fieldValidation=Strict", {"foo": 1}, media_type)
    assert 'strict decoding error: unknown field "foo"' in refused["message"]
    assert refused["details"]["causes"][0]["field"] == "patch"
    twice = api.call("PATCH", path, '{"data":{"a":"1","a":"2"}}', media_type)
    assert (warnings_of(twice), twice.json()["data"]) == ({'duplicate field "data.a"'}, {"a": "2"})


def test_a_json_patch_cannot_add_an_unknown_field(api: Api, namespace: str) -> None:
    api.ok("POST", f"{namespace}/configmaps", {"metadata": {"name": "a"}})
    patch = [{"op": "add", "path": "/foo", "value": 1}]
    assert "foo" not in api.patch(f"{namespace}/configmaps/a", patch, JSON_PATCH)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"foo": 1}, ".foo: field not declared in schema"),
        ({"data": {"a": 1}}, ".data.a: expected string, got &value.valueUnstructured{Value:1}"),
    ],
)
def test_what_is_applied_has_only_declared_fields(api: Api, content: dict[str, Any], why: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}} | content
    refused = api.fails(500, "PATCH", f"{CM}/a?fieldManager=me", body, APPLY)
    assert refused["message"] == f"failed to create typed patch object (/a; /v1, Kind=ConfigMap): {why}"


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"containers": "x"},
        "cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container",
    ),
    ({"restartPolicy": 1}, "cannot unmarshal number into Go struct field PodSpec.spec.restartPolicy of type v1.Res"),
    ({"hostNetwork": "true"}, "cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool"),
    ({"nodeSelector": ["a"]}, "cannot unmarshal array into Go struct field PodSpec.spec.nodeSelector of type map"),
    ({"activeDeadlineSeconds": 1.5}, "cannot unmarshal number 1.5 into Go struct field PodSpec.spec.activeDeadlineSe"),
    (
        {"priority": 2**40},
        "cannot unmarshal number 1099511627776 into Go struct field PodSpec.spec.priority of type int32",
    ),
    ({"overhead": {"cpu": "1x"}}, "quantities must match the regular expression"),
]


@pytest.mark.parametrize(("content", "why"), WRONG, ids=[next(iter(content)) for content, _ in WRONG])
def test_a_wrong_type_is_refused_with_its_place(api: Api, content: dict[str, Any], why: str) -> None:
    assert why in api.fails(400, "POST", PODS, pod("a", **content))["message"]


def test_a_time_or_a_binary_value_that_is_none_is_refused(api: Api) -> None:
    made = {"metadata": {"name": "a", "creationTimestamp": "x"}}
    assert 'parsing time "x"' in api.fails(400, "POST", f"{CM}?dryRun=All", made)["message"]
    binary = {"metadata": {"name": "a"}, "binaryData": {"a": "%%"}}
    assert "illegal base64 data at input byte 0" in api.fails(400, "POST", f"{CM}?dryRun=All", binary)["message"]


def test_empty_fields_are_stored_as_their_types_say(api: Api) -> None:
    empty = {"metadata": {"name": "a"}, "data": {}, "binaryData": None, "immutable": False}
    stored = api.ok("POST", f"{CM}?dryRun=All", empty)
    assert {key: value for key, value in stored.items() if key != "metadata"} == {
        "apiVersion": "v1", "kind": "ConfigMap", "immutable": False
    }  # fmt: skip
    container = {"name": "c", "image": "i:1", "stdin": False, "args": [], "env": [{"name": "A", "value": ""}]}
    spec = api.ok("POST", PODS, pod("a", containers=[container], hostNetwork=False, enableServiceLinks=False))["spec"]
    assert (spec["containers"][0]["env"], spec["enableServiceLinks"]) == ([{"name": "A"}], False)
    assert {"stdin", "args"} & spec["containers"][0].keys() == set()
    assert "hostNetwork" not in spec
    node = api.ok("POST", "/api/v1/nodes?dryRun=All", {"metadata": {"name": "a"}})
    assert node["status"]["nodeInfo"]["kubeletVersion"] == ""


def test_quantities_are_stored_in_canonical_form(api: Api) -> None:
    volume = {"name": "v", "emptyDir": {"sizeLimit": "1024Ki"}}
    resources = {"requests": {"cpu": 0.5}, "limits": {"cpu": "1000m"}}
    container = {"name": "c", "image": "i:1", "resources": resources}
    spec = api.ok("POST", PODS, pod("a", containers=[container], volumes=[volume]))["spec"]
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}
    assert spec["volumes"][0]["emptyDir"] == {"sizeLimit": "1Mi"}
