"""What is read of Karpenter: its node class or NodePool, our NodeClaims, and Events about them."""

from collections.abc import Mapping, Sequence

from manager.autoscaler.cloudprovider import node_template
from manager.autoscaler.cloudprovider.errors import Unavailable
from manager.autoscaler.cloudprovider.karpenter import NAME, groups
from manager.autoscaler.cloudprovider.karpenter.claims import NodeClaim, NodeClassReference, NodeDefaults
from manager.autoscaler.cloudprovider.karpenter.config import KarpenterCloud, NodeClassRef
from shared import names
from shared.api.core import Condition, Node, Taint
from shared.api.meta import ObjectMeta, Wire, prepared
from shared.kube.client import Client
from shared.kube.errors import Forbidden, NotFound
from shared.kube.resources import EVENTS, NODECLAIMS, NODEPOOLS, NODES, Resource

EVENTS_NAMESPACE = "default"  # of Events about what has no namespace
NODE_CLASS_READY, READY = "NodeClassReady", "Ready"


class _TemplateSpec(Wire, frozen=True):
    node_class_ref: NodeClassReference = NodeClassReference()
    taints: tuple[Taint, ...] = ()
    startup_taints: tuple[Taint, ...] = ()


class _Template(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _TemplateSpec = _TemplateSpec()


class _PoolSpec(Wire, frozen=True):
    template: _Template = _Template()


class _Status(Wire, frozen=True):
    conditions: tuple[Condition, ...] | None = None


@prepared
class _NodePool(Wire, frozen=True):
    spec: _PoolSpec = _PoolSpec()
    status: _Status = _Status()


@prepared
class _NodeClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()


class _Involved(Wire, frozen=True):
    kind: str = ""
    name: str = ""


@prepared
class _Event(Wire, frozen=True):
    type: str = ""
    reason: str = ""
    message: str = ""
    involved_object: _Involved = _Involved()


class KarpenterReader:
    """Raises the client's errors. `minds_drift`: it matters whether a NodePool's node class has changed."""

    def __init__(self, client: Client, *, minds_drift: bool) -> None:
        self._client = client
        self._minds_drift = minds_drift

    def claims(self) -> dict[str, NodeClaim]:
        """Our NodeClaims, by name. Raises Unavailable in a cluster without Karpenter."""
        try:
            listed = self._client.list(NODECLAIMS, into=NodeClaim, label_selector=names.LABEL_NODE_GROUP)
        except NotFound as error:
            raise Unavailable(NAME, "", f"the cluster does not serve {NODECLAIMS}: is Karpenter installed?") from error
        return {each.metadata.name: each for each in listed.items if each.is_ours}

    def defaults(self, cloud: KarpenterCloud) -> tuple[NodeDefaults, str]:
        """What nodes get, and why none can be made now: Karpenter deletes a claim whose node class is missing or not
        ready, and until it has, nothing else of Karpenter's goes on.
        """
        if cloud.node_class is not None:
            return self._of_node_class(cloud.node_class)
        source = f"NodePool {cloud.node_pool}"
        try:
            pool = self._client.get(NODEPOOLS, cloud.node_pool, into=_NodePool)
        except (NotFound, Forbidden) as error:
            return NodeDefaults(), f"{source}, whose template defines the nodes, cannot be read: {error}"
        template = pool.spec.template
        labels = {
            key: value
            for key, value in (template.metadata.labels or {}).items()
            if not node_template.is_reserved(key) and key != names.LABEL_NODE_GROUP
        }
        hashes, problem = self._hashes(template.spec.node_class_ref, cloud) if self._minds_drift else ((), "")
        found = NodeDefaults(
            template.spec.node_class_ref,
            tuple(sorted(labels.items())),
            template.spec.taints,
            template.spec.startup_taints,
            hashes,
            problem,
        )
        return found, _unready(source, pool.status.conditions, NODE_CLASS_READY)

    def warnings(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Reasons and messages of Warnings about NodeClaims, by claim; none without the right to read them."""
        try:
            listed = self._client.list(
                EVENTS, EVENTS_NAMESPACE, into=_Event, field_selector="involvedObject.kind=NodeClaim,type=Warning"
            )
        except Forbidden:
            return {}
        found: dict[str, list[tuple[str, str]]] = {}
        for event in listed.items:
            if event.involved_object.kind == "NodeClaim" and event.type == "Warning":
                found.setdefault(event.involved_object.name, []).append((event.reason, event.message))
        return found

    def node(self, name: str) -> Node | None:
        try:
            return self._client.get(NODES, name, into=Node)
        except NotFound:
            return None

    def _of_node_class(self, ref: NodeClassRef) -> tuple[NodeDefaults, str]:
        reference = NodeClassReference(ref.group, ref.kind, ref.name)
        try:
            found = self._client.get(_resource(ref), ref.name, into=_NodeClass)
        except (NotFound, Forbidden) as error:
            return NodeDefaults(reference), f"{reference}, which defines the nodes, cannot be read: {error}"
        problem = _unready(str(reference), found.status.conditions, READY)
        return NodeDefaults(reference, hashes=_hashes_of(found)), problem

    def _hashes(self, named: NodeClassReference, cloud: KarpenterCloud) -> tuple[tuple[tuple[str, str], ...], str]:
        """Those of the node class that a NodePool names, and why they cannot be read. The NodePool does not say its
        version, and the right to read it is granted by name, so the file names it, too.
        """
        ref = cloud.node_pool_class
        if ref is None:
            return (), f"the file has no node_pool_class, which {named} needs to be read"
        if named != NodeClassReference(ref.group, ref.kind, ref.name):
            return (), f"NodePool {cloud.node_pool} names {named}, and node_pool_class {ref.kind} {ref.name}"
        try:
            return _hashes_of(self._client.get(_resource(ref), ref.name, into=_NodeClass)), ""
        except (NotFound, Forbidden) as error:
            return (), f"{named} cannot be read: {error}"


def _resource(ref: NodeClassRef) -> Resource:
    return Resource(ref.group, ref.version, ref.resource_name, namespaced=False)


def _hashes_of(found: _NodeClass) -> tuple[tuple[str, str], ...]:
    annotations = sorted((found.metadata.annotations or {}).items())
    return tuple((key, value) for key, value in annotations if key.endswith((groups.HASH, groups.HASH_VERSION)))


def _unready(source: str, conditions: Sequence[Condition] | None, kind: str) -> str:
    found = next((each for each in conditions or () if each.type == kind), None)
    if found is not None and found.status == "True":
        return ""
    reason = "it does not report that it is ready" if found is None else f"{found.reason} {found.message}".strip()
    return f"{source} is not ready: {reason}"
