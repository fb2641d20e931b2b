"""The subresources of a pod: bind it to a node, evict it, read its logs."""

import time
from collections.abc import AsyncIterator
from functools import partial
from urllib.parse import urlencode

import httpx
import msgspec
from starlette.responses import Response

from deploy.local.apiserver import bodies, disruption, kubectl, status
from deploy.local.apiserver.bodies import How
from deploy.local.apiserver.deletion import Preconditions, check_preconditions
from deploy.local.apiserver.kinds import BY_RESOURCE
from deploy.local.apiserver.objects import Json, JsonObject, dig
from deploy.local.apiserver.requests import Request, Target
from deploy.local.apiserver.responses import done, stream
from deploy.local.apiserver.store import Store, StoredObject
from deploy.local.apiserver.writes import Writes
from shared import durations

PODS, _BUDGETS = BY_RESOURCE["/pods"], BY_RESOURCE["policy/poddisruptionbudgets"]
_WOULD_VIOLATE = "Cannot evict pod as it would violate the pod's disruption budget."
_MANY_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


class PodSubresources:
    """Handlers of pods/binding, pods/eviction and pods/log."""

    def __init__(self, store: Store, writes: Writes) -> None:
        self._store = store
        self._writes = writes

    async def handle(self, request: Request, target: Target) -> Response:
        match request.method, target.subresource:
            case "POST", "binding":
                return self._bind(request, target, bodies.parse(request))
            case "POST", "eviction":
                return self._evict(request, target)
            case "GET", "log":
                return await self._log(request, target)
        raise status.method_not_allowed()

    def not_interactive(self, target: Target) -> status.StatusError:
        """The refusal of `kubectl exec` and its like. Raises StatusError (404) without such a pod."""
        self._store.found(PODS, target.namespace, target.name)
        return status.StatusError(501, "NotImplemented", kubectl.not_interactive(target.subresource))

    def _bind(self, request: Request, target: Target, binding: Json) -> Response:
        """Binds a pod to a node. Raises StatusError."""
        _check_name(target.name, binding, "Binding")
        how = How("binding", dry_run=request.dry_run)
        node, kind = dig(binding, "target", "name"), dig(binding, "target", "kind")
        if kind not in (None, "", "Node") or not isinstance(node, str) or not node:
            raise status.bad_request("a binding names a Node as its target")
        assign = partial(_assigned, node=node, meta=dig(binding, "metadata") or {}, name=target.name)
        self._writes.update(PODS, target.namespace, target.name, assign, how)
        return done(code=201)

    def _evict(self, request: Request, target: Target) -> Response:
        eviction = bodies.parse(request)
        _check_name(target.name, eviction, "Eviction")
        record = self._store.found(PODS, target.namespace, target.name)
        pod, wanted = record.load(), bodies.deletion(dig(eviction, "deleteOptions") or {})
        check_preconditions(PODS, pod["metadata"], wanted)
        dry_run = request.dry_run or bool(wanted.dry_run)
        if not disruption.may_go_at_once(pod):
            self._spend_budget(record, pod, dry_run)
        if not dry_run:
            self._writes.update(PODS, target.namespace, target.name, _targeted, How("status"))
        given = Preconditions(wanted.preconditions.uid)
        unconditional = msgspec.structs.replace(wanted, preconditions=given, dry_run=("All",) if dry_run else ())
        self._writes.delete(PODS, target.namespace, target.name, unconditional)
        return done(code=201)

    def _spend_budget(self, pod_record: StoredObject, pod: JsonObject, dry_run: bool) -> None:
        """Takes one disruption from the pod's budget. Raises StatusError (429) if none is left."""
        budgets = [
            budget
            for record in self._store.ordered(_BUDGETS.resource)
            if record.namespace == pod_record.namespace
            and disruption.covers(budget := record.load(), pod_record.labels)
        ]
        if len(budgets) > 1:
            raise status.StatusError(500, "", _MANY_BUDGETS)
        if not budgets or disruption.exempt_as_unhealthy(budgets[0], pod):
            return
        name, how = budgets[0]["metadata"]["name"], How("status", dry_run=dry_run)
        self._writes.update(_BUDGETS, pod_record.namespace, name, _spent, how)

    async def _log(self, request: Request, target: Target) -> Response:
        record = self._store.found(PODS, target.namespace, target.name)
        pod = record.load()
        container = request.query.get("container") or _only_container(pod)
        node_name = pod["spec"].get("nodeName") or ""
        node = self._store.get("/nodes", node_name)
        port = dig(node.load(), "status", "daemonEndpoints", "kubeletEndpoint", "Port") if node else None
        if not port:
            why = f"the kubelet of node {node_name!r} publishes no endpoint" if node_name else "pod is not scheduled"
            raise status.StatusError(501, "NotImplemented", f"logs are not available: {why}")
        query = urlencode({key: value for key, value in request.query.items() if key != "container"})
        path = f"/containerLogs/{target.namespace}/{target.name}/{container}" + (f"?{query}" if query else "")
        return await _opened(int(port), path)


def _assigned(pod: JsonObject, node: str, meta: JsonObject, name: str) -> JsonObject:
    """The pod on its node. Raises StatusError (409) if it already has a node or is being deleted."""
    if meta.get("uid") not in (None, "", pod["metadata"]["uid"]):
        raise status.conflict("", "pods", name, f"its uid is {pod['metadata']['uid']}")
    if pod["metadata"].get("deletionTimestamp"):
        raise status.conflict("", "pods/binding", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if current := pod["spec"].get("nodeName"):
        raise status.conflict("", "pods/binding", name, f'pod {name} is already assigned to node "{current}"')
    annotations = (pod["metadata"].get("annotations") or {}) | (meta.get("annotations") or {})
    return pod | {
        "metadata": pod["metadata"] | {"annotations": annotations},
        "spec": pod["spec"] | {"nodeName": node},
        "status": _with_condition(pod, {"type": "PodScheduled"}),
    }


def _targeted(pod: JsonObject) -> JsonObject:
    """The pod with the reason for its eviction."""
    reason = {"type": "DisruptionTarget", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
    return pod | {"status": _with_condition(pod, reason)}


def _with_condition(pod: JsonObject, condition: JsonObject) -> JsonObject:
    """The pod's status with a true condition; a condition that was already true keeps its transition time."""
    state: JsonObject = pod.get("status") or {}
    now = {"status": "True", "lastProbeTime": None, "lastTransitionTime": durations.timestamp(time.time())}
    old: list[JsonObject] = state.get("conditions") or []
    before = next((c for c in old if c.get("type") == condition["type"]), {})
    if before.get("status") == "True":
        now["lastTransitionTime"] = before.get("lastTransitionTime")
    others = [item for item in old if item is not before]
    return state | {"conditions": [*others, condition | now]}


def _check_name(expected: str, posted: Json, kind: str) -> None:
    if dig(posted, "metadata", "name") != expected:
        raise status.bad_request(f"name in URL does not match name in {kind} object")


def _spent(budget: JsonObject) -> JsonObject:
    """The budget with one disruption less. Raises StatusError (429)."""
    current, name = budget.get("status") or {}, budget["metadata"]["name"]
    allowed = current.get("disruptionsAllowed", 0)
    if allowed <= 0:
        healthy, needed = current.get("currentHealthy", 0), current.get("desiredHealthy", 0)
        why = f"needs {needed} healthy pods and has {healthy} currently"
        if healthy > needed:
            why = "does not allow evicting pods currently"
        cause = {"reason": "DisruptionBudget", "message": f"The disruption budget {name} {why}"}
        raise status.StatusError(429, "TooManyRequests", _WOULD_VIOLATE, details={"causes": [cause]})
    return budget | {"status": current | {"disruptionsAllowed": allowed - 1}}


def _only_container(pod: JsonObject) -> str:
    names = [container["name"] for container in pod["spec"].get("containers") or ()]
    if len(names) == 1:
        return str(names[0])
    listed = " ".join(names)
    raise status.bad_request(
        f"a container name must be specified for pod {pod['metadata']['name']}, choose one of: [{listed}]"
    )


async def _opened(port: int, path: str) -> Response:
    """A kubelet's answer as a stream. Raises StatusError (400, 500)."""
    client = httpx.AsyncClient(timeout=None, trust_env=False)
    try:
        answer = await client.send(client.build_request("GET", f"http://127.0.0.1:{port}{path}"), stream=True)
    except httpx.HTTPError as error:
        raise status.internal(f"the kubelet on port {port} does not answer: {error}") from error
    if not answer.is_success:
        reason = (await answer.aread()).decode(errors="replace").strip()
        await client.aclose()
        raise status.bad_request(reason or "the kubelet refused")

    async def chunks() -> AsyncIterator[bytes]:
        try:
            async for chunk in answer.aiter_raw():
                yield chunk
        finally:
            await client.aclose()

    return stream(chunks(), "text/plain")
