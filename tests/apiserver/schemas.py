"""`python -m tests.apiserver.schemas`: writes openapi.json, the schemas of the built-in kinds.

They are what the kube-apiserver in KUBEBUILDER_ASSETS publishes at /openapi/v3, without descriptions.
"""

import contextlib
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import httpx

from deploy.local.apiserver.kinds import BUILT_IN, REVIEWS
from deploy.local.apiserver.schemas import DATA, META, identities
from tests.support.apiserver import RealApiServer

_REFERENCE = re.compile(r'"#/components/schemas/([^"]+)"')


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as directory,
        contextlib.closing(RealApiServer(Path(directory))) as server,
        server.http() as http,
    ):
        release = http.get("/version").json()["gitVersion"]
        published = _published(http)
    kinds = {(kind.group, kind.version, kind.kind) for kind in (*BUILT_IN, *REVIEWS)}
    found: dict[str, Any] = {}
    wanted = [META, *(name for name, schema in published.items() if kinds & identities(schema))]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = _bare(published[name])
            wanted += _REFERENCE.findall(json.dumps(found[name]))
    lines = ",\n".join(f"{json.dumps(name)}:{_compact(found[name])}" for name in sorted(found))
    DATA.write_text(f'{{"kubernetes":"{release}","schemas":{{\n{lines}\n}}}}\n', encoding="utf-8")


def _published(http: httpx.Client) -> dict[str, Any]:
    """Every schema that the server knows, by name."""
    schemas: dict[str, Any] = {}
    for path in http.get("/openapi/v3").raise_for_status().json()["paths"]:
        schemas |= http.get(f"/openapi/v3/{path}").raise_for_status().json()["components"].get("schemas", {})
    return schemas


def _compact(schema: dict[str, Any]) -> str:
    return json.dumps(schema, separators=(",", ":"), sort_keys=True)


def _bare(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without the texts that explain it."""
    bare = {key: value for key, value in schema.items() if key != "description"}
    if "properties" in bare:
        bare["properties"] = {name: _bare(property_) for name, property_ in bare["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(bare.get(key), dict):
            bare[key] = _bare(bare[key])
    return bare


if __name__ == "__main__":
    main()
