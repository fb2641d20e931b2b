"""What selectors are refused for, in the words of the API."""

import pytest

from tests.integration.apiserver.conftest import APPLY, Api

LABELS = [
    ("a===b", "unable to parse requirement: found '=', expected: identifier"),
    ("a in", "unable to parse requirement: found '' expected: '('"),
    ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
    ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
    ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    ("!", "unable to parse requirement: found '', expected: identifier"),
    ("a=b,", "found '', expected: identifier after ','"),
    ("a=b,,c=d", "found ',', expected: identifier after ','"),
    ("a=b c", "found 'c', expected: ',' or 'end of string'"),
    ("a!=b!=c", "found '!=', expected: ',' or 'end of string'"),
    ("-a=b", 'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of'),
    ("A/b=c", 'unable to parse requirement: <nil>: Invalid value: "A/b": prefix part a lowercase RFC 1123 subdomain'),
    ("a=-b", 'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be an empty string'),
    (
        "a>b",
        "unable to parse requirement: values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be",
    ),
]


@pytest.mark.parametrize(("selector", "message"), LABELS, ids=[selector for selector, _ in LABELS])
def test_a_label_selector_is_refused_where_it_goes_wrong(api: Api, selector: str, message: str) -> None:
    answer = api.http.get("/api/v1/namespaces", params={"labelSelector": selector})
    assert (answer.status_code, answer.json()["reason"]) == (400, "BadRequest")
    assert answer.json()["message"].startswith(message)


@pytest.mark.parametrize("selector", ["a in ()", "a in (,)", "a notin (b,)", "in in (in)", "a  =  b", "!a,b", "a=="])
def test_odd_label_selectors_are_understood(api: Api, selector: str) -> None:
    assert api.http.get("/api/v1/namespaces", params={"labelSelector": selector}).status_code == 200


@pytest.mark.parametrize(
    ("selector", "message"),
    [
        ("metadata.name", "invalid selector: 'metadata.name'; can't understand 'metadata.name'"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("metadata.namespace=a", "field label not supported: metadata.namespace"),
        ("spec.x=1", "field label not supported: spec.x"),
    ],
)
def test_a_field_selector_is_refused_where_it_goes_wrong(api: Api, selector: str, message: str) -> None:
    answer = api.http.get("/api/v1/namespaces", params={"fieldSelector": selector})
    assert (answer.status_code, answer.json()["message"]) == (400, message)


@pytest.mark.parametrize(
    ("identity", "shown"),
    [
        ({}, "/, Kind="),
        ({"kind": "ConfigMap"}, "/, Kind=ConfigMap"),
        ({"apiVersion": "v1"}, "/v1, Kind="),
        ({"apiVersion": "v2", "kind": "ConfigMap"}, "/v2, Kind=ConfigMap"),
        ({"apiVersion": "v1", "kind": "Pod"}, "/v1, Kind=Pod"),
    ],
)
def test_what_is_applied_says_what_it_is(api: Api, identity: dict[str, str], shown: str) -> None:
    path = "/api/v1/namespaces/default/configmaps/a?fieldManager=me"
    refused = api.fails(400, "PATCH", path, identity | {"metadata": {"name": "a"}}, APPLY)
    assert refused["message"] == f"invalid object type: {shown}"
