"""Bodies that are no object of the API are the client's mistake: 4xx, never a 500, and nothing of them is stored."""

from typing import Any

import pytest

from tests.integration.apiserver.conftest import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api

pytestmark = pytest.mark.embedded_only("how deep an object may nest, and what a body may be at all, is its own")

DEEP = 5000


def nested(levels: int = DEEP) -> str:
    return '{"a":' * levels + "1" + "}" * levels


@pytest.fixture
def config_map(api: Api, namespace: str) -> str:
    """Its path."""
    collection = f"{namespace}/configmaps"
    api.ok("POST", collection, {"metadata": {"name": "x"}, "data": {"k": "v"}})
    return f"{collection}/x"


@pytest.mark.parametrize("media_type", [MERGE, STRATEGIC, JSON_PATCH, APPLY])
@pytest.mark.parametrize(
    "body",
    [
        nested(),
        "[" * DEEP + "]" * DEEP,
        f'{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"labels":{nested()}}}}}',
        f'{{"data":{nested(200)}}}',
        f'[{{"op":"add","path":"/data","value":{nested()}}}]',
    ],
    ids=["objects", "lists", "labels", "200 levels", "operation"],
)
def test_a_patch_of_5000_deep_json_answers_400_and_changes_nothing(
    api: Api, config_map: str, media_type: str, body: str
) -> None:
    before = api.ok("GET", config_map)
    assert api.fails(400, "PATCH", f"{config_map}?fieldManager=t", body, media_type)["reason"] == "BadRequest"
    assert api.ok("GET", config_map) == before


@pytest.mark.parametrize(
    ("media_type", "body"),
    [
        ("application/json", nested()),
        ("application/json", f'{{"metadata":{{"name":"y"}},"data":{nested(300)}}}'),
        ("application/yaml", "- " * DEEP + "x"),
        ("application/yaml", "metadata: {name: y}\ndata: " + "{a: " * DEEP + "1" + "}" * DEEP),
        ("application/yaml", "a: &a [*a]\n"),
        ("application/json", '{"metadata":{"name":"y","generation":%s}}' % ("9" * 400)),
        ("application/json", '{"metadata":{"name":"y","generation":1e999}}'),
        ("application/json", '{"metadata":{"name":"y","generation":NaN}}'),
        ("application/yaml", "metadata: {name: y, generation: .nan}"),
        ("application/json", b'{"metadata":{"name":"y"},"data":{"a":"\xff\xfe"}}'),
        ("application/yaml", b'metadata: {name: y}\ndata: {a: "\xff\xfe"}'),
        ("application/yaml", "? [a, b]\n: c\n"),
        ("application/yaml", "{null: a, true: b, metadata: {name: y}}"),
        ("application/json", '{"metadata":{"name":"y"},"data":{"a":"\\ud800"}}'),
    ],
    ids=[
        *("deep", "deep data", "deep yaml list", "deep yaml map", "yaml that holds itself", "huge integer"),
        *("infinite float", "NaN", "yaml nan", "invalid UTF-8", "invalid UTF-8 in yaml", "key that is a list"),
        *("keys that are no text", "half a surrogate pair"),
    ],
)
def test_a_post_of_what_no_object_can_be_answers_400(
    api: Api, namespace: str, media_type: str, body: str | bytes
) -> None:
    api.fails(400, "POST", f"{namespace}/configmaps", body, media_type)


def test_aliases_that_multiply_what_a_yaml_document_holds_are_refused(api: Api, namespace: str) -> None:
    rows = [
        f"{letter}: &{letter} [{', '.join([f'*{before}'] * 10)}]"
        for before, letter in zip("abcdef", "bcdefg", strict=True)
    ]
    body = "\n".join(["a: &a [x, x, x, x, x, x, x, x, x, x]", *rows, "metadata: {name: y}"])
    found = api.fails(400, "POST", f"{namespace}/configmaps", body, "application/yaml")
    assert "excessive aliasing" in found["message"]


def test_copies_that_double_an_object_are_refused_before_they_fill_the_memory(api: Api, config_map: str) -> None:
    operations: list[dict[str, Any]] = [
        {"op": "copy", "from": "/data", "path": f"/data/{number}"} for number in range(40)
    ]
    api.fails(413, "PATCH", config_map, operations, JSON_PATCH)


def test_metadata_that_is_no_object_is_refused_in_a_patch(api: Api, config_map: str) -> None:
    for media_type in (MERGE, STRATEGIC):
        assert api.call("PATCH", config_map, {"metadata": 1}, media_type).status_code in (400, 422)


def test_of_a_key_that_comes_twice_the_last_counts_and_strict_validation_refuses_it(api: Api, namespace: str) -> None:
    collection = f"{namespace}/configmaps"
    body = '{"metadata":{"name":"y"},"data":{"a":"1","a":"2"}}'
    assert 'duplicate field "data.a"' in api.fails(400, "POST", f"{collection}?fieldValidation=Strict", body)["message"]
    assert api.ok("POST", collection, body)["data"] == {"a": "2"}
