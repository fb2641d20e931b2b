"""The autoscaler's registry: requests, backoffs and failures that outlive an iteration and a restart.

A request is stored before the cloud is asked (`add_request`), so that the next leader knows which nodes may be
upcoming after a crash; `fail_request` withdraws it when the cloud refuses. All steps are pure; times are Unix seconds.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec
from msgspec import UNSET, UnsetType

from manager.autoscaler.cluster_state import state
from manager.autoscaler.cluster_state.replacement import DisruptionReason, Replacement
from manager.autoscaler.cluster_state.state import GroupBackoff, Increase, OptionRefusal, ScaleUpRequest
from manager.autoscaler.settings.estimates import BackoffTimes
from shared.errors import InvalidInput

VERSION = 1
CLOUD_PROVIDER_ERROR = "cloudProviderError"  # backoff code after the cloud has refused, or not answered
MOST_AHEAD_SECONDS = 3600.0  # clocks of two processes may differ; a registry from further ahead is invalid
MOST_SECONDS = 30 * 24 * 3600.0  # no increase and no backoff takes longer
MOST_REFUSALS = 200  # of options by the scheduler
MOST_REASON = 500  # characters: a cloud's message may exceed a ConfigMap


@dataclass(frozen=True, slots=True)
class Shortage:
    """Nodes of a target for which the cloud has no instance, unchanged since `since`.

    `corrected_at`: when a correction was last tried.
    """

    since: float
    nodes: int
    corrected_at: float | None = None


class Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Requests, backoffs and failures, by group.

    `unregistered`: since when each instance without a Node is known, by its provider id; `failed`: the provider ids of
    instances that could not be made, and were reported. `made_as`: the id that a created group had as a candidate; the
    next candidate of its kind has the same id. `replacement` is under way, `replaced_at` is the end of the last one;
    without consolidation neither is written, so that an older manager can read the registry. `refusals` are options
    that the scheduler has refused; without any they are not written either.
    """

    version: int = VERSION
    requests: Mapping[str, ScaleUpRequest] = {}
    backoffs: Mapping[str, GroupBackoff] = {}
    unregistered: Mapping[str, Mapping[str, float]] = {}
    failed: Mapping[str, tuple[str, ...]] = {}
    short: Mapping[str, Shortage] = {}
    made_as: Mapping[str, str] = {}
    replacement: Replacement | UnsetType = UNSET
    replaced_at: float | UnsetType = UNSET
    refusals: tuple[OptionRefusal, ...] | UnsetType = UNSET

    @property
    def refused_options(self) -> tuple[OptionRefusal, ...]:
        """Options that the scheduler has refused."""
        return () if self.refusals is UNSET else self.refusals

    @property
    def replacing(self) -> Replacement | None:
        """The replacement under way."""
        return None if self.replacement is UNSET else self.replacement


_DECODER = msgspec.json.Decoder(Registry)


def encode_registry(registry: Registry) -> str:
    """The registry as JSON; equal registries have the same text."""
    return msgspec.json.encode(registry, order="deterministic").decode()


def decode_registry(text: str, source: str, now: float) -> Registry:
    """Reads the text of `encode_registry`. Raises InvalidInput, also for impossible values."""
    try:
        found = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidInput(source=source, field="registry", value=text, problem=str(error)) from error
    if found.version != VERSION:
        raise InvalidInput(source=source, field="version", value=found.version, problem=f"{VERSION} is what is read")
    for field, value, problem in _mistakes(found, now):
        raise InvalidInput(source=source, field=field, value=value, problem=problem)
    return found


def add_request(registry: Registry, increase: Increase, now: float, deadline_seconds: float) -> Registry:
    """Adds the increase before it is requested; it joins the request under way, which gets the same new deadline."""
    before = registry.requests.get(increase.group)
    nodes = increase.nodes + (before.nodes if before is not None else 0)
    request = ScaleUpRequest(increase.group, nodes, now, now + deadline_seconds, increase.to_size)
    return msgspec.structs.replace(registry, requests={**registry.requests, increase.group: request})


def add_created_groups(registry: Registry, groups: Iterable[str], candidate: str) -> Registry:
    """Records that these groups were created from a candidate."""
    return msgspec.structs.replace(registry, made_as={**registry.made_as, **dict.fromkeys(groups, candidate)})


def fail_request(
    registry: Registry,
    increase: Increase,
    reason: str,
    now: float,
    times: BackoffTimes,
    *,
    in_doubt: bool = False,
) -> Registry:
    """Backs off the group, because the cloud did not fulfil the request.

    `in_doubt`: the cloud may have fulfilled it nevertheless (no answer, or an impossible one), so the request stays
    until the result is observed.
    """
    if not in_doubt:
        registry = withdraw_request(registry, increase)
    return back_off(registry, increase.group, reason, now, times, code=CLOUD_PROVIDER_ERROR)


def withdraw_request(registry: Registry, increase: Increase) -> Registry:
    """Removes an increase that was stored but never requested."""
    return remove_nodes(registry, increase.group, increase.nodes)


def remove_nodes(registry: Registry, group: str, nodes: int) -> Registry:
    """Removes nodes that will not come from the request under way."""
    before = registry.requests.get(group)
    if before is None or nodes <= 0:
        return registry
    requests = {name: each for name, each in registry.requests.items() if name != group}
    if before.nodes > nodes:
        requests[group] = replace(before, nodes=before.nodes - nodes, to_size=max(0, before.to_size - nodes))
    return msgspec.structs.replace(registry, requests=requests)


def lower_request(registry: Registry, group: str, nodes: int) -> Registry:
    """Lowers the target of the request under way by nodes that were deleted meanwhile."""
    request = registry.requests.get(group)
    if request is None:
        return registry
    lower = replace(request, to_size=max(0, request.to_size - nodes))
    return msgspec.structs.replace(registry, requests={**registry.requests, group: lower})


def shift_times(registry: Registry, seconds: float) -> Registry:
    """The registry after a clock jump of `seconds`: the age of each request stays the same."""

    def moved(moment: float) -> float:
        return max(0.0, moment + seconds)

    return msgspec.structs.replace(
        registry,
        requests={
            name: replace(each, started_at=moved(each.started_at), deadline=moved(each.deadline))
            for name, each in registry.requests.items()
        },
        backoffs={
            name: replace(each, failed_at=moved(each.failed_at), until=moved(each.until))
            for name, each in registry.backoffs.items()
        },
        unregistered={
            name: {instance: moved(since) for instance, since in known.items()}
            for name, known in registry.unregistered.items()
        },
        short={
            name: replace(
                each,
                since=moved(each.since),
                corrected_at=None if each.corrected_at is None else moved(each.corrected_at),
            )
            for name, each in registry.short.items()
        },
        replacement=UNSET if registry.replacing is None else registry.replacing.shifted(seconds),
        replaced_at=UNSET if registry.replaced_at is UNSET else moved(registry.replaced_at),
        refusals=_or_unset(
            replace(each, at=moved(each.at), until=moved(each.until)) for each in registry.refused_options
        ),
    )


def with_replacement(registry: Registry, replacement: Replacement | None) -> Registry:
    """The registry with the replacement under way, or without one."""
    return msgspec.structs.replace(registry, replacement=UNSET if replacement is None else replacement)


def with_refusals(registry: Registry, refusals: Iterable[OptionRefusal]) -> Registry:
    """The registry with these refused options, instead of those that it has."""
    return msgspec.structs.replace(registry, refusals=_or_unset(refusals))


def back_off(registry: Registry, group: str, reason: str, now: float, times: BackoffTimes, *, code: str) -> Registry:
    """Backs off a group that has failed, or could not be created (then `group` is its provisional id).

    A created group fails together with its candidate: otherwise the next group of its kind would be created at once,
    and fail, too.
    """
    reason, code = reason[:MOST_REASON], code[:MOST_REASON]
    found = {
        each: state.next_backoff(registry.backoffs.get(each), times, now, reason, code)
        for each in (group, registry.made_as.get(group, group))
    }
    return msgspec.structs.replace(registry, backoffs={**registry.backoffs, **found})


def remove_backoff(registry: Registry, group: str) -> Registry:
    """Ends the backoff of a group that has grown."""
    others = {name: each for name, each in registry.backoffs.items() if name != group}
    return msgspec.structs.replace(registry, backoffs=others)


def drop_old_backoffs(registry: Registry, times: BackoffTimes, now: float) -> Registry:
    """Drops old backoffs. A group that could not be created has only its backoff, and is forgotten with it."""
    kept = {name: each for name, each in registry.backoffs.items() if not each.is_forgotten(times, now)}
    return msgspec.structs.replace(registry, backoffs=kept)


def active_backoff(registry: Registry, group: str, now: float) -> GroupBackoff | None:
    """The backoff in effect."""
    found = registry.backoffs.get(group)
    return found if found is not None and found.holds(now) else None


def _or_unset(refusals: Iterable[OptionRefusal]) -> tuple[OptionRefusal, ...] | UnsetType:
    return tuple(refusals) or UNSET


def _wrong_start(value: float, now: float) -> str:
    latest = now + MOST_AHEAD_SECONDS
    return "" if 0 <= value <= latest else f"not a time up to {latest:.0f}"


def _wrong_end(start: float, end: float) -> str:
    return "" if start <= end <= start + MOST_SECONDS else f"not within {MOST_SECONDS:.0f} s after {start:.0f}"


def _replacement_mistakes(found: Replacement | None, now: float) -> Iterator[tuple[str, object, str]]:
    if found is None:
        return
    if problem := _wrong_start(found.started_at, now):
        yield "replacement.started_at", found.started_at, problem
    if problem := _wrong_end(found.started_at, found.deadline):
        yield "replacement.deadline", found.deadline, problem
    lacks_launches = not found.launches and found.reason is DisruptionReason.UNDERUTILIZED
    if not found.removed or lacks_launches or any(each.nodes <= 0 for each in found.launches):
        yield "replacement", str(found), "a replacement has nodes that go and nodes that come"


def _mistakes(registry: Registry, now: float) -> Iterator[tuple[str, object, str]]:

    for group, request in registry.requests.items():
        field = f"requests[{group}]"
        if request.group != group:
            yield f"{field}.group", request.group, "of another group"
        if request.nodes <= 0:
            yield f"{field}.nodes", request.nodes, "a request is for nodes"
        if request.to_size < 0:
            yield f"{field}.to_size", request.to_size, "must not be negative"
        if problem := _wrong_start(request.started_at, now):
            yield f"{field}.started_at", request.started_at, problem
        if problem := _wrong_end(request.started_at, request.deadline):
            yield f"{field}.deadline", request.deadline, problem
    for group, each in registry.backoffs.items():
        field = f"backoffs[{group}]"
        if not 0 <= each.seconds <= MOST_SECONDS:
            yield f"{field}.seconds", each.seconds, f"not from 0 to {MOST_SECONDS:.0f}"
        if problem := _wrong_start(each.failed_at, now):
            yield f"{field}.failed_at", each.failed_at, problem
        if problem := _wrong_end(each.failed_at, each.until):
            yield f"{field}.until", each.until, problem
    for group, instances in registry.unregistered.items():
        for instance, since in instances.items():
            if problem := _wrong_start(since, now):
                yield f"unregistered[{group}][{instance}]", since, problem
    if len(registry.refused_options) > MOST_REFUSALS:
        yield "refusals", len(registry.refused_options), f"more than {MOST_REFUSALS}"
    for number, refusal in enumerate(registry.refused_options):
        field = f"refusals[{number}]"
        if not refusal.groups:
            yield f"{field}.groups", refusal.groups, "a refusal is of a group"
        if problem := _wrong_start(refusal.at, now):
            yield f"{field}.at", refusal.at, problem
        if problem := _wrong_end(refusal.at, refusal.until):
            yield f"{field}.until", refusal.until, problem
    if registry.replaced_at is not UNSET and (problem := _wrong_start(registry.replaced_at, now)):
        yield "replaced_at", registry.replaced_at, problem
    yield from _replacement_mistakes(registry.replacing, now)
    for group, shortage in registry.short.items():
        if shortage.nodes <= 0:
            yield f"short[{group}].nodes", shortage.nodes, "a shortage is of nodes"
        if problem := _wrong_start(shortage.since, now):
            yield f"short[{group}].since", shortage.since, problem
        if shortage.corrected_at is not None and (problem := _wrong_start(shortage.corrected_at, now)):
            yield f"short[{group}].corrected_at", shortage.corrected_at, problem
