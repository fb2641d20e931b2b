"""What a support bundle may hold of an object or a text."""

import json

import pytest

from deploy.support.scrubbing import REMOVED, Json, scrubbed, text_scrubbed

PLANTED = "hunter2-planted"
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl"
PEM = f"-----BEGIN EC PRIVATE KEY-----\n{PLANTED}\n-----END EC PRIVATE KEY-----"

OBJECTS: dict[str, Json] = {
    "a variable": {"env": [{"name": "DATABASE", "value": PLANTED}]},
    "what was applied": {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": PLANTED}},
    "who wrote fields": {"managedFields": [{"manager": PLANTED}]},
    "a token": {"data": {"bearerToken": PLANTED}},
    "a password in an annotation": {"annotations": {"example.com/db-password": PLANTED}},
    "a flag": {"args": [f"--api-key={PLANTED}"]},
    "a flag and its value": {"args": ["--client-secret", PLANTED]},
    "a shell's flag": {"command": ["sh", "-c", f"run --token {JWT}"]},
    "settings": {"data": {"manager.yaml": f"logLevel: info\npassword: {PLANTED} and {PLANTED}\nmode: enforce"}},
    "a block": {"data": {"a.yaml": f"a:\n  clientSecret: |\n    {PLANTED}\n\n    {PLANTED}\n  b: 1"}},
    "settings as JSON": {"data": {"a.json": json.dumps({"x": 1, "accessKey": PLANTED})}},
    "settings in one line": {"data": {"a.yaml": f"cloud: {{region: eu, secret_access_key: {PLANTED}}}"}},
    "a list of settings": {"data": {"a.yaml": f"- token: {PLANTED}"}},
    "a key": {"data": {"tls.key": PEM}},
    "half a key": {"data": {"tls.key": PEM[:60]}},
    "a token in a message": {"message": f"cannot authenticate by {JWT}: denied"},
    "a header": {"message": f"sent Authorization: Bearer {PLANTED}"},
    "a URL": {"message": f"cannot reach https://admin:{PLANTED}@db.example.com/x"},
    "a query": {"message": f"GET https://example.com/?a=1&token={PLANTED}&b=2"},
    "an id of AWS": {"message": "AKIAIOSFODNN7PLANTED is not known"},
}


@pytest.mark.parametrize("value", OBJECTS.values(), ids=OBJECTS.keys())
def test_a_planted_secret_is_removed(value: Json) -> None:
    text = json.dumps(scrubbed(value))
    assert not [each for each in (PLANTED, PLANTED[:7], JWT, "IOSFODNN7PLANTED") if each in text]


def test_what_is_no_secret_stays() -> None:
    kept: Json = {
        "metadata": {"name": "headroom-manager", "labels": {"app.kubernetes.io/part-of": "headroom"}},
        "spec": {
            "automountServiceAccountToken": True,
            "containers": [
                {
                    "args": ["--webhook-secret-name=headroom-webhook", "--authorization=delegated", "--tls=self"],
                    "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
                }
            ],
            "volumes": [{"name": "tls", "secret": {"secretName": "headroom-tls"}}],
        },
        "data": {"manager.yaml": "dryRun: true\nkubeletTokenFile: /var/run/token\noffers: mid"},
        "status": {"allocatable": {"cpu": "4", "kubernetes.io/mid-cpu": "1500"}, "none": None, "share": 0.5},
    }
    assert scrubbed(kept) == kept


def test_what_surrounds_a_secret_stays() -> None:
    assert text_scrubbed("a: 1\npassword: x y\nb: 2") == f"a: 1\npassword: {REMOVED}\nb: 2"
    assert text_scrubbed("reach https://u:p@host/x") == f"reach https://{REMOVED}@host/x"
    assert scrubbed({"env": [{"name": "A", "value": "b"}]}) == {"env": [{"name": "A", "value": REMOVED}]}
