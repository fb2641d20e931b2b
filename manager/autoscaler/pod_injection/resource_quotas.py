"""ResourceQuotas limit buffers: a namespace reserves no more room than its pods may still request.

As in Cluster Autoscaler, buffers get the rest of a quota after pods, in the order of their names. Chunks are pods
without a deadline; the scope CrossNamespacePodAffinity excludes them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from manager.autoscaler.pod_injection.buffer_reading import BufferChunks
from shared import names
from shared.api import pods
from shared.api.resourcequota import ResourceQuota, ScopeRequirement
from shared.errors import InvalidInput
from shared.quantity import Amounts, QuantityError

KIND = "ResourceQuota"
_REQUESTS = "requests."  # before the name of a resource, which quotas of cpu and memory may leave out


def limit_chunks(
    buffers: Mapping[str, BufferChunks], quotas: Iterable[ResourceQuota]
) -> tuple[dict[str, BufferChunks], dict[str, InvalidInput]]:
    """The buffers with as many of the wanted chunks as the quotas of their namespaces allow, and the errors of
    unreadable quotas, which allow none.
    """
    left: dict[str, list[tuple[ResourceQuota, dict[str, int]]]] = {}
    refused: dict[str, InvalidInput] = {}
    for quota in sorted(quotas, key=lambda each: each.metadata.key):
        try:
            remaining = _remaining(quota)
        except InvalidInput as error:
            refused[error.source] = error
            remaining = dict.fromkeys(quota.status.hard or {}, 0)
        left.setdefault(quota.metadata.namespace, []).append((quota, remaining))
    found = {}
    for key, buffer in sorted(buffers.items()):
        asked = buffer.facts.requests
        over = [each for each in left.get(key.partition("/")[0], ()) if _counts(buffer, each[0])]
        allowed = {quota.metadata.name: _most(remaining, asked, buffer.wanted) for quota, remaining in over}
        count = min((buffer.wanted, *allowed.values()))
        limits = tuple(name for name, most in allowed.items() if most < buffer.wanted)
        found[key] = replace(buffer, count=count, limited_by=limits)
        for _, remaining in over:
            for name, amount in _limited(remaining, asked):
                remaining[name] -= count * amount
    return found, refused


def _remaining(quota: ResourceQuota) -> dict[str, int]:
    """The rest of each requested resource after pods, in the units of requests. Raises InvalidInput."""
    status = quota.status
    hard, used = status.hard or {}, status.used or {}
    found = {}
    for name, most in hard.items():
        resource = name.removeprefix(_REQUESTS)
        values = {resource: most}, {resource: used.get(name, 0)}
        try:
            limit, taken = (pods.amounts(each)[resource] for each in values)
        except QuantityError as error:
            source = f"{KIND} {quota.metadata.key}"
            raise InvalidInput(source=source, field=f"status.hard.{name}", value=most, problem=str(error)) from error
        found[name] = limit - taken
    return found


def _limited(remaining: Mapping[str, int], asked: Amounts) -> list[tuple[str, int]]:
    """The limits that a chunk counts towards, each with what the chunk takes."""
    return [(name, amount) for name in remaining if (amount := asked.get(name.removeprefix(_REQUESTS), 0)) > 0]


def _most(remaining: Mapping[str, int], asked: Amounts, wanted: int) -> int:
    return max(0, min((remaining[name] // amount for name, amount in _limited(remaining, asked)), default=wanted))


def _counts(buffer: BufferChunks, quota: ResourceQuota) -> bool:
    """Whether all scopes of a quota include chunks."""
    spec = quota.spec
    selector = spec.scope_selector
    required = [
        *(ScopeRequirement(scope, "Exists") for scope in spec.scopes or ()),
        *((selector.match_expressions or ()) if selector is not None else ()),
    ]
    return all(_is_in(buffer, each) for each in required)


def _is_in(buffer: BufferChunks, scope: ScopeRequirement) -> bool:
    best_effort = not {names.CPU, names.MEMORY} & buffer.facts.requests.keys()
    match scope.scope_name:
        case "NotTerminating":
            return True
        case "BestEffort":
            return best_effort
        case "NotBestEffort":
            return not best_effort
        case "PriorityClass":
            return _has_priority_class(buffer.priority_class, scope)
        case _:
            return False


def _has_priority_class(name: str, scope: ScopeRequirement) -> bool:
    match scope.operator:
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
        case "In":
            return name in (scope.values or ())
        case _:
            return name not in (scope.values or ())
