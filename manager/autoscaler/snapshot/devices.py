"""The devices of nodes, and what the ResourceClaims of pods take of them (dynamic resource allocation).

All devices that a request may get are one resource of a node, whose amount is their number. A request takes from its
own resource, and from each resource whose devices contain its own. If no two resources overlap otherwise, the requests
of a node can be met exactly if no resource is exceeded (Hall's theorem for nested sets). Claims that this cannot
express are refused: a pod with claims is never placed by guess.
"""

from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from manager.autoscaler.snapshot import device_selectors
from manager.autoscaler.snapshot.device_selectors import SelectorProblem
from shared.api.core import Node, NodeSelector, Pod
from shared.api.dra import (
    EXACT_COUNT,
    IMPLICIT_RESOURCE_PREFIX,
    Device,
    DeviceClass,
    DeviceSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
    ResourceSlice,
)
from shared.cached_property import cached_property

CANNOT_ALLOCATE = "cannot allocate all claims"
UNKNOWN = "no {kind} is known, so it is not known which devices a new node has"
MOST_QUERIES = 256  # different requests whose devices are told apart
_BLOCKING_TAINTS = frozenset({"NoSchedule", "NoExecute"})


class ClaimProblem(Exception):
    """A claim that is not planned: its field in the pod, its name, and why."""

    def __init__(self, claim: str, problem: str) -> None:
        super().__init__(problem)
        self.claim, self.problem = claim, problem


class DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str


class Query(NamedTuple):
    """The devices of a class that all further CEL selectors select."""

    device_class: str
    selectors: tuple[str, ...] = ()

    @property
    def resource(self) -> str:
        """The resource whose amount is their number: a class alone goes by Kubernetes' name for it."""
        return f"{IMPLICIT_RESOURCE_PREFIX}{self}"

    def __str__(self) -> str:
        return " and ".join((self.device_class, *self.selectors))


class ClaimedDevices(NamedTuple):
    """What the claims of a pod require: `amounts` of devices on its node, and a node that allocations allow.

    `shared` are claims of which another pod takes the devices, so that the pod has to go to its node; `carried` are
    those for which others wait.
    """

    amounts: Mapping[str, int] = {}
    allocated: tuple[NodeSelector, ...] = ()
    shared: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()


class _Selection(NamedTuple):
    """The devices of a request, and why it cannot be judged about others."""

    devices: frozenset[DeviceId]
    problem: str = ""


class _Plan(NamedTuple):
    """The resources of which a request takes, and why it is not planned; empty if it is."""

    resources: tuple[str, ...]
    problem: str


class _NodeDevice(NamedTuple):
    identity: DeviceId
    node: str
    device: Device


def is_device_resource(resource: str) -> bool:
    return resource.startswith(IMPLICIT_RESOURCE_PREFIX)


def claims_of(pod: Pod) -> Iterator[tuple[str, str, bool]]:
    """By claim of the pod: the name of the ResourceClaim (empty: not made yet), that of the template, and whether other
    pods may name the claim, too.
    """
    made = {each.name: each.resource_claim_name for each in pod.status.resource_claim_statuses or ()}
    for each in pod.spec.resource_claims or ():
        yield (
            each.resource_claim_name or made.get(each.name, ""),
            each.resource_claim_template_name,
            bool(each.resource_claim_name),
        )


def first_carriers(pods: Iterable[Pod]) -> dict[str, str]:
    """By claim that several of these pods name: the pod that takes its devices, the first by name."""
    named: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods:
        for claim, _, is_shared in claims_of(pod):
            if is_shared:
                named[f"{pod.metadata.namespace}/{claim}"].append(pod.metadata.key)
    return {claim: min(keys) for claim, keys in named.items() if len(keys) > 1}


class Devices:
    """The devices of the cluster, and its claims by "namespace/name". What is None is not known."""

    def __init__(
        self,
        slices: Mapping[str, ResourceSlice] | None = None,
        classes: Mapping[str, DeviceClass] | None = None,
        claims: Mapping[str, ResourceClaim] | None = None,
        templates: Mapping[str, ResourceClaimTemplate] | None = None,
    ) -> None:
        self._slices, self._classes, self._claims, self._templates = slices, classes, claims, templates
        self._plans: dict[Query, _Plan] = {}

    def of_pod(self, pod: Pod, carriers: Mapping[str, str]) -> ClaimedDevices:
        """What the claims of a pod require of its next node; `carriers` are those of `first_carriers`.

        Raises ClaimProblem.
        """
        amounts = Counter[str]()
        allocated: list[NodeSelector] = []
        shared, carried = [], []
        for name, template, may_be_shared in claims_of(pod):
            key = f"{pod.metadata.namespace}/{name}"
            spec, claim = self._spec(pod, name, template)
            allocation = None if claim is None else claim.status.allocation
            moves = bool(pod.spec.node_name) and (claim is None or len(claim.status.reserved_for or ()) <= 1)
            if claim is not None and allocation is not None and not moves:
                allocated += [] if allocation.node_selector is None else [allocation.node_selector]
                if not pod.spec.node_name and _holder(claim) == pod.metadata.name:  # it is about to be bound
                    amounts.update(self._resources_of(_allocated(claim)))
            elif carriers.get(key, pod.metadata.key) != pod.metadata.key and may_be_shared:
                shared.append(key)
            else:
                carried += [key] if key in carriers and may_be_shared else []
                for query, count in self._requests(name or template, spec):
                    amounts.update(dict.fromkeys(self._plan(query).resources, count))
        return ClaimedDevices(amounts, tuple(allocated), tuple(shared), tuple(carried))

    def likeness(self, pod: Pod, carriers: Mapping[str, str]) -> tuple[object, ...]:
        """Equal for pods of one spec whose claims require the same."""
        found: list[object] = []
        for name, _, _ in claims_of(pod):
            key = f"{pod.metadata.namespace}/{name}"
            claim = (self._claims or {}).get(key)
            is_allocated = claim is not None and claim.status.allocation is not None
            found.append((key if is_allocated else "", carriers.get(key) == pod.metadata.key))
        return tuple(found)

    def of_extended(self, requests: Mapping[str, int]) -> dict[str, int]:
        """What a pod that requests devices as extended resources takes of other resources of devices."""
        found = Counter[str]()
        for name, count in requests.items() if self._slices else ():
            for query in self._by_extended.get(name, ()):
                own = {name, query.resource}  # the resource of another name may be a device plug-in's
                found.update({each: count for each in self._plan(query).resources if each not in own})
        return found

    @cached_property
    def _by_extended(self) -> dict[str, list[Query]]:
        """By extended resource, the classes that serve it."""
        found = {query.resource: [query] for query in self._selections}
        for query, name in self._extended.items():
            found.setdefault(name, []).append(query)
        return found

    def held_by(self, pod: Pod, requested: Container[str]) -> dict[str, int]:
        """The devices that are allocated to the claims of a pod on its node, by resource, besides those that it has
        `requested` as extended resources.

        Of a claim that several pods share, the first one holds them.
        """
        found = Counter[str]()
        extended = pod.status.extended_resource_claim_status
        names: list[tuple[str, Container[str]]] = [(name, ()) for name, _, _ in claims_of(pod)]
        if extended is not None:
            names.append((extended.resource_claim_name, requested))
        for name, besides in names:
            claim = (self._claims or {}).get(f"{pod.metadata.namespace}/{name}")
            if claim is None or claim.status.allocation is None:
                continue
            if _holder(claim) == pod.metadata.name:
                held = self._resources_of(_allocated(claim))
                found.update({each: count for each, count in held.items() if each not in besides})
        return dict(found)

    def of_node(self, name: str) -> Mapping[str, int]:
        """The number of devices of each resource on a node, without those allocated to claims that no pod has."""
        return self._of_nodes.get(name, {})

    @cached_property
    def _of_nodes(self) -> dict[str, dict[str, int]]:
        found: defaultdict[str, Counter[str]] = defaultdict(Counter)
        orphaned = {
            each
            for claim in (self._claims or {}).values()
            if not claim.status.reserved_for
            for each in _allocated(claim)
        }
        for query, (identities, _) in self._selections.items():
            names = (query.resource, *([self._extended[query]] if query in self._extended else ()))
            for each in identities:
                amounts = found[self._devices[each].node]
                for name in names:
                    amounts[name] += each not in orphaned
        return {node: dict(amounts) for node, amounts in found.items()}

    def _spec(self, pod: Pod, name: str, template: str) -> tuple[ResourceClaimSpec, ResourceClaim | None]:
        for kind, known in (
            ("ResourceClaim", self._claims),
            ("DeviceClass", self._classes),
            ("ResourceSlice", self._slices),
        ):
            if known is None and (kind != "ResourceClaim" or name):
                raise ClaimProblem(name or template, UNKNOWN.format(kind=kind))
        claim = (self._claims or {}).get(f"{pod.metadata.namespace}/{name}") if name else None
        if claim is not None:
            if claim.metadata.deletion_timestamp is not None:
                raise ClaimProblem(name, f'resourceclaim "{name}" is being deleted')
            return claim.spec, claim
        made_from = (self._templates or {}).get(f"{pod.metadata.namespace}/{template}")
        if made_from is None:
            kind = "resourceclaimtemplate" if template else "resourceclaim"
            raise ClaimProblem(name or template, f'{kind} "{template or name}" not found')
        return made_from.spec.spec, None

    def _requests(self, claim: str, spec: ResourceClaimSpec) -> Iterator[tuple[Query, int]]:
        """The devices that a claim requests. Raises ClaimProblem for what is not planned."""
        if spec.devices.constraints:
            raise ClaimProblem(claim, "constraints between its devices are not planned")
        for request in spec.devices.requests or ():
            about = f"request {request.name}: "
            exactly = request.exactly
            if exactly is None:
                raise ClaimProblem(claim, about + "alternatives (firstAvailable) are not planned")
            if beyond := _beyond_plan(exactly):
                raise ClaimProblem(claim, f"{about}{beyond} is not planned")
            if exactly.device_class_name not in (self._classes or {}):
                raise ClaimProblem(claim, f"{about}device class {exactly.device_class_name} does not exist")
            query = _query(exactly)
            if query not in self._selections:
                raise ClaimProblem(claim, f"{about}more than {MOST_QUERIES} different requests are not planned")
            if problem := self._plan(query).problem:
                raise ClaimProblem(claim, about + problem)
            yield query, exactly.count

    def _plan(self, query: Query) -> _Plan:
        if query not in self._plans:
            self._plans[query] = _Plan(tuple(self._taken_resources(query)), self._why_not(query))
        return self._plans[query]

    def _why_not(self, query: Query) -> str:
        mine, problem = self._selections[query]
        if not mine:
            return problem
        for each in map(self._devices.__getitem__, mine):
            if each.device.consumes_counters or each.device.allow_multiple_allocations:
                return f"device {each.identity.device} of {each.node} can be divided, which is not planned"
        others = ((each, self._selections[each].devices) for each in self._used if each in self._selections)
        crossing = next((each for each, devices in others if _cross(mine, devices)), None)
        return "" if crossing is None else f"it shares some of its devices with requests for {crossing}"

    def _taken_resources(self, query: Query) -> Iterator[str]:
        """The resources of which a request for these devices takes."""
        mine = self._selections[query].devices
        for other, (devices, _) in self._selections.items():
            if other == query or (mine and mine <= devices):
                yield other.resource
                if other in self._extended:
                    yield self._extended[other]

    @cached_property
    def _devices(self) -> dict[DeviceId, _NodeDevice]:
        """The devices of nodes that can be allocated: of complete pools, in their newest generation."""
        pools: defaultdict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
        for each in (self._slices or {}).values():
            pools[each.spec.driver, each.spec.pool.name].append(each)
        found = {}
        for (driver, pool), slices in pools.items():
            newest = max(each.spec.pool.generation for each in slices)
            current = [each.spec for each in slices if each.spec.pool.generation == newest]
            if len(current) < current[0].pool.resource_slice_count:
                continue
            for spec in current:
                for device in spec.devices or () if spec.node_name else ():
                    if not any(taint.effect in _BLOCKING_TAINTS for taint in device.taints or ()):
                        identity = DeviceId(driver, pool, device.name)
                        found[identity] = _NodeDevice(identity, spec.node_name, device)
        return found

    @cached_property
    def _extended(self) -> dict[Query, str]:
        """The extended resource by which pods may request the devices of a class."""
        classes = (self._classes or {}).items()
        return {
            Query(name): each.spec.extended_resource_name for name, each in classes if each.spec.extended_resource_name
        }

    def serve(self, resource: str) -> bool:
        """Whether the amount of the resource is a number of devices."""
        return is_device_resource(resource) or resource in self._extended.values()

    @cached_property
    def _used(self) -> frozenset[Query]:
        """The requests of all claims."""
        return frozenset(query for claim in (self._claims or {}).values() for query in _queries(claim.spec))

    @cached_property
    def _selections(self) -> dict[Query, _Selection]:
        """The devices of each request that there is, and of each class, which pods may request by its resource."""
        specs = [each.spec.spec for each in (self._templates or {}).values()]
        made = sorted({*self._used, *(query for spec in specs for query in _queries(spec))})
        queries = dict.fromkeys((*(Query(each.device_class) for each in made), *made, *map(Query, self._classes or ())))
        kept = [each for each in queries if each.device_class in (self._classes or {})][:MOST_QUERIES]
        return {query: self._selected(query) for query in kept}

    def _selected(self, query: Query) -> _Selection:
        """A device about which a selector fails leaves its node without devices of the request: the scheduler gives up
        such a node, too.
        """
        expressions = (*_expressions((self._classes or {})[query.device_class].spec.selectors), *query.selectors)
        kind_of = device_selectors.kinds(expressions)
        verdicts: dict[bytes, bool | str] = {}
        found, broken = [], dict[str, str]()
        for each in self._devices.values():
            kind = kind_of(each.identity.driver, each.device)
            if kind not in verdicts:
                try:
                    verdicts[kind] = device_selectors.selects(expressions, each.identity.driver, each.device)
                except SelectorProblem as problem:
                    verdicts[kind] = str(problem)
            verdict = verdicts[kind]
            if verdict is True:
                found.append(each)
            elif verdict:
                broken[each.node] = str(verdict)
        devices = frozenset(each.identity for each in found if each.node not in broken)
        return _Selection(devices, next(iter(broken.values()), ""))

    def _resources_of(self, identities: Sequence[DeviceId]) -> Counter[str]:
        found = Counter[str]()
        for query, (devices, _) in self._selections.items():
            count = sum(each in devices for each in identities)
            if count:
                found[query.resource] += count
                if query in self._extended:
                    found[self._extended[query]] += count
        return found


def with_devices(nodes: Iterable[Node], devices: Devices) -> tuple[Node, ...]:
    """The nodes with their devices among what is allocatable; what a device plug-in offers stays as it is."""
    return tuple(_with_amounts(node, devices.of_node(node.metadata.name)) for node in nodes)


def with_expected_devices(node: Node, expected: Mapping[str, int], devices: Devices) -> Node | None:
    """A node whose driver has not published the devices that nodes of its group have, with these; None for another."""
    missing = {name: amount for name, amount in expected.items() if amount and devices.serve(name)}
    return _with_amounts(node, missing) if missing.keys() - (node.status.allocatable or {}).keys() else None


def _with_amounts(node: Node, amounts: Mapping[str, int]) -> Node:
    if not amounts:
        return node
    allocatable = {**amounts, **(node.status.allocatable or {})}
    return msgspec.structs.replace(node, status=msgspec.structs.replace(node.status, allocatable=allocatable))


def _holder(claim: ResourceClaim) -> str:
    """The pod that holds the devices of a claim; of several that share it, one of them."""
    return next((each.name for each in claim.status.reserved_for or ()), "")


def _allocated(claim: ResourceClaim) -> list[DeviceId]:
    results = claim.status.allocation.devices.results if claim.status.allocation else None
    return [DeviceId(each.driver, each.pool, each.device) for each in results or () if not each.admin_access]


def _beyond_plan(request: ExactDeviceRequest) -> str:
    """What about a request is not planned; empty if all is."""
    if request.admin_access:
        return "admin access"
    if request.allocation_mode != EXACT_COUNT:
        return f"allocation mode {request.allocation_mode}"
    if request.tolerations:
        return "a toleration of device taints"
    return "a share of a device's capacity" if request.capacity else ""


def _queries(spec: ResourceClaimSpec) -> Iterator[Query]:
    for request in spec.devices.requests or ():
        if request.exactly is not None:
            yield _query(request.exactly)


def _query(request: ExactDeviceRequest) -> Query:
    return Query(request.device_class_name, tuple(sorted(_expressions(request.selectors))))


def _expressions(selectors: Iterable[DeviceSelector] | None) -> list[str]:
    return [each.cel.expression for each in selectors or () if each.cel is not None]


def _cross(one: frozenset[DeviceId], other: frozenset[DeviceId]) -> bool:
    """Whether they overlap, and neither contains the other."""
    return not (one <= other or other <= one or one.isdisjoint(other))
