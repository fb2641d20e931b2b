"""Writes the bundle: one gzipped archive of JSON and text files. Secrets are never read."""

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from deploy import versions
from deploy.access import ClusterContext
from deploy.check import command as check
from deploy.manager_api import ManagerApi, connected
from deploy.support.scrubbing import Json, scrubbed, text_scrubbed
from deploy.versions import CRDS, OURS
from shared.errors import HeadroomError, InvalidInput
from shared.kube.client import Client
from shared.kube.resources import (
    CLUSTERCOLOCATIONPROFILES,
    CONFIGMAPS,
    DAEMONSETS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    MUTATINGWEBHOOKS,
    NODEMETRICS,
    NODES,
    PODS,
    VALIDATINGWEBHOOKS,
    Resource,
)

MOST_OBJECTS = 2000  # of a kind; beyond that, a bundle is too large to send
MODE = 0o600
_OF_EVENTS = ("headroom", "koord")  # components, and reporting controllers, begin with one
_ANSWERS = ("status", "nodes", "decisions", "groups", "prediction", "autoscaler/nodes")


def write(target: Path, access: ClusterContext, *, namespace: str, manager: str, service: str) -> list[str]:
    """Writes the archive, and returns what could not be read. Raises InvalidInput for a target that exists."""
    missing: list[str] = []
    try:
        with open(target, "xb", opener=_private) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
            for name, content in _parts(access, namespace, manager, service, missing):
                _add(archive, name, content)
            _add(archive, "missing.txt", "\n".join(missing) + "\n")
    except FileExistsError as error:
        raise InvalidInput(source="command line", field="--to", value=str(target), problem="it exists") from error
    except OSError as error:
        raise HeadroomError(f"{target} cannot be written: {error.strerror}") from error
    return missing


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, MODE)


def _parts(
    access: ClusterContext, namespace: str, manager: str, service: str, missing: list[str]
) -> Iterator[tuple[str, str]]:
    """The files by name. What cannot be read is noted in `missing`."""

    def read(name: str, part: Callable[[], str]) -> Iterator[tuple[str, str]]:
        try:
            yield name, part()
        except HeadroomError as error:
            missing.append(text_scrubbed(f"{name}: {error}"))

    yield from read("versions.json", lambda: versions.run(access, "json"))
    options = {"namespace": namespace, "manager": manager, "service": service}
    yield from read("check.json", lambda: check.rendered(check.report(access, **options), "json"))
    with closing(Client(access.connection(), "headroom-support").single_attempt()) as client:
        for name, part in _objects(client, namespace):
            yield from read(f"objects/{name}.json", part)
    try:
        with connected(manager, access, namespace, service) as api:
            for path in (*(f"api/v1/{each}" for each in _ANSWERS), "metrics"):
                yield from read(f"manager/{path.replace('/', '-')}.txt", partial(_answer, api, f"/{path}"))
    except HeadroomError as error:
        missing.append(f"manager: {error}")


def _answer(api: ManagerApi, path: str) -> str:
    answer = api.get(path)
    if not answer.is_success:
        raise HeadroomError(f"status {answer.status_code}")
    if not answer.headers.get("content-type", "").startswith("application/json"):
        return text_scrubbed(answer.text)
    return _json(scrubbed(cast(Json, answer.json())))


def _objects(client: Client, namespace: str) -> Iterator[tuple[str, Callable[[], str]]]:
    """The cluster's objects that concern Headroom, by file."""
    for resource in (NODES, NODEMETRICS, CLUSTERCOLOCATIONPROFILES):
        yield resource.plural, partial(_listed, client, resource)
    for resource in (DEPLOYMENTS, DAEMONSETS, PODS, MUTATINGWEBHOOKS, VALIDATINGWEBHOOKS, CRDS):
        yield resource.plural, partial(_listed, client, resource, selector=OURS)
    for resource in (CONFIGMAPS, LEASES):
        yield resource.plural, partial(_listed, client, resource, namespace=namespace)
    yield EVENTS.plural, partial(_events, client)


def _listed(client: Client, resource: Resource, namespace: str | None = None, selector: str | None = None) -> str:
    found = client.list(resource, namespace, into=dict[str, object], keep=_kept, label_selector=selector).items
    return _list(found)


def _events(client: Client) -> str:
    found = client.list(EVENTS, into=dict[str, object], keep=_event).items
    return _list([each for each in found if each is not None])


def _event(found: dict[str, object]) -> Json:
    """An Event of Headroom, or None."""
    source = cast(dict[str, object], found.get("source") or {})
    component = str(found.get("reportingComponent") or source.get("component") or "")
    return _kept(found) if component.startswith(_OF_EVENTS) else None


def _kept(found: dict[str, object]) -> Json:
    return scrubbed(cast(Json, found))


def _list(found: list[Json]) -> str:
    left_out = max(len(found) - MOST_OBJECTS, 0)
    return _json({"kind": "List", "apiVersion": "v1", "left_out": left_out, "items": found[:MOST_OBJECTS]})


def _json(value: Json) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()


def _add(archive: tarfile.TarFile, name: str, content: str) -> None:
    data = content.encode()
    entry = tarfile.TarInfo(f"headroom-support/{name}")
    entry.size, entry.mode = len(data), MODE
    archive.addfile(entry, io.BytesIO(data))
