"""The autoscaler's registry: requests, backoffs and failures that outlive an iteration and a restart.

A request is stored before the cloud is asked (`add_request`), so that the next leader knows what may be on its way
after a crash; `fail_request` takes it back when the cloud refuses. All steps are pure; times are Unix seconds.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import msgspec

from manager.autoscaler.cluster_state import backoff
from manager.autoscaler.cluster_state.backoff import BackoffTimes, GroupBackoff
from manager.autoscaler.cluster_state.state import ScaleUpRequest
from manager.autoscaler.scale_up.decisions import Increase
from shared.errors import InvalidInput

VERSION = 1
CLOUD_PROVIDER_ERROR = "cloudProviderError"  # the code of a backoff after the cloud has refused, or not answered
MOST_AHEAD_SECONDS = (
    3600.0  # clocks of two processes may differ; books from further ahead are not of this cluster's time
)
MOST_SECONDS = 30 * 24 * 3600.0  # no increase and no backoff takes longer
MOST_REASON = 500  # characters: a cloud may say more than a ConfigMap holds


@dataclass(frozen=True, slots=True)
class Shortage:
    """So many nodes of a target for which the cloud has no instance, unchanged since then.

    `corrected_at`: when it was last tried to take them back.
    """

    since: float
    nodes: int
    corrected_at: float | None = None


class Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By group. `unregistered`: since when each instance without a Node is known, by its provider id; `failed`: the
    provider ids of instances that could not be made, and were told of. `made_as`: the id a created group had as a
    candidate, which others of its kind have again.
    """

    version: int = VERSION
    requests: Mapping[str, ScaleUpRequest] = {}
    backoffs: Mapping[str, GroupBackoff] = {}
    unregistered: Mapping[str, Mapping[str, float]] = {}
    failed: Mapping[str, tuple[str, ...]] = {}
    short: Mapping[str, Shortage] = {}
    made_as: Mapping[str, str] = {}


_DECODER = msgspec.json.Decoder(Registry)


def encode_registry(registry: Registry) -> str:
    """As JSON; equal books have the same text."""
    return msgspec.json.encode(registry, order="deterministic").decode()


def decode_registry(text: str, source: str, now: float) -> Registry:
    """Reads what `encode_registry` wrote. Raises InvalidInput, also for values that are impossible."""
    try:
        found = _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidInput(source=source, field="books", value=text, problem=str(error)) from error
    if found.version != VERSION:
        raise InvalidInput(source=source, field="version", value=found.version, problem=f"{VERSION} is what is read")
    for field, value, problem in _mistakes(found, now):
        raise InvalidInput(source=source, field=field, value=value, problem=problem)
    return found


def add_request(registry: Registry, increase: Increase, now: float, deadline_seconds: float) -> Registry:
    """The increase is about to be asked for; it joins what is under way, which gets the same new deadline."""
    before = registry.requests.get(increase.group)
    nodes = increase.nodes + (before.nodes if before is not None else 0)
    request = ScaleUpRequest(increase.group, nodes, now, now + deadline_seconds, increase.to_size)
    return msgspec.structs.replace(registry, requests={**registry.requests, increase.group: request})


def add_created_groups(registry: Registry, groups: Iterable[str], candidate: str) -> Registry:
    """These groups were made of a candidate."""
    return msgspec.structs.replace(registry, made_as={**registry.made_as, **dict.fromkeys(groups, candidate)})


def fail_request(
    registry: Registry,
    increase: Increase,
    reason: str,
    now: float,
    times: BackoffTimes,
    *,
    code: str = CLOUD_PROVIDER_ERROR,
    in_doubt: bool = False,
) -> Registry:
    """The cloud did not do it: the group is backed off. `in_doubt`: it may have done it all the same (no answer, or one
    that cannot be true), so the request stays until it is seen what became of it.
    """
    if not in_doubt:
        registry = withdraw_request(registry, increase)
    return back_off(registry, increase.group, reason, now, times, code=code)


def withdraw_request(registry: Registry, increase: Increase) -> Registry:
    """The increase was noted and never asked for."""
    return remove_nodes(registry, increase.group, increase.nodes)


def remove_nodes(registry: Registry, group: str, nodes: int) -> Registry:
    """So many nodes of what is under way will not come."""
    before = registry.requests.get(group)
    if before is None or nodes <= 0:
        return registry
    requests = {name: each for name, each in registry.requests.items() if name != group}
    if before.nodes > nodes:
        requests[group] = replace(before, nodes=before.nodes - nodes, to_size=max(0, before.to_size - nodes))
    return msgspec.structs.replace(registry, requests=requests)


def lower_request(registry: Registry, group: str, nodes: int) -> Registry:
    """So many other nodes of a group have gone: what is under way leads to a lower target."""
    request = registry.requests.get(group)
    if request is None:
        return registry
    lower = replace(request, to_size=max(0, request.to_size - nodes))
    return msgspec.structs.replace(registry, requests={**registry.requests, group: lower})


def shift_times(registry: Registry, seconds: float) -> Registry:
    """After the clock has jumped by so much: what was asked for ten seconds ago still was."""

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
    )


def back_off(registry: Registry, group: str, reason: str, now: float, times: BackoffTimes, *, code: str) -> Registry:
    """The group has failed, or could not be created (then its id as yet).

    A created one fails together with its candidate: else the next of its kind would be made at once, and fail alike.
    """
    reason, code = reason[:MOST_REASON], code[:MOST_REASON]
    found = {
        each: backoff.next_backoff(registry.backoffs.get(each), times, now, reason, code)
        for each in (group, registry.made_as.get(group, group))
    }
    return msgspec.structs.replace(registry, backoffs={**registry.backoffs, **found})


def remove_backoff(registry: Registry, group: str) -> Registry:
    """The group has grown, and is left alone no more."""
    others = {name: each for name, each in registry.backoffs.items() if name != group}
    return msgspec.structs.replace(registry, backoffs=others)


def drop_old_backoffs(registry: Registry, times: BackoffTimes, now: float) -> Registry:
    """A group that could not be created has nothing but its backoff, and is forgotten with it."""
    kept = {name: each for name, each in registry.backoffs.items() if not backoff.is_forgotten(each, times, now)}
    return msgspec.structs.replace(registry, backoffs=kept)


def active_backoff(registry: Registry, group: str, now: float) -> GroupBackoff | None:
    """The backoff in effect."""
    found = registry.backoffs.get(group)
    return found if found is not None and found.holds(now) else None


def _mistakes(registry: Registry, now: float) -> Iterator[tuple[str, object, str]]:
    latest = now + MOST_AHEAD_SECONDS

    def wrong_start(value: float) -> str:
        return "" if 0 <= value <= latest else f"not a time up to {latest:.0f}"

    def wrong_end(start: float, end: float) -> str:
        return "" if start <= end <= start + MOST_SECONDS else f"not within {MOST_SECONDS:.0f} s after {start:.0f}"

    for group, request in registry.requests.items():
        field = f"requests[{group}]"
        if request.group != group:
            yield f"{field}.group", request.group, "of another group"
        if request.nodes <= 0:
            yield f"{field}.nodes", request.nodes, "a request is for nodes"
        if request.to_size < 0:
            yield f"{field}.to_size", request.to_size, "a size is not negative"
        if problem := wrong_start(request.started_at):
            yield f"{field}.started_at", request.started_at, problem
        if problem := wrong_end(request.started_at, request.deadline):
            yield f"{field}.deadline", request.deadline, problem
    for group, each in registry.backoffs.items():
        field = f"backoffs[{group}]"
        if not 0 <= each.seconds <= MOST_SECONDS:
            yield f"{field}.seconds", each.seconds, f"not from 0 to {MOST_SECONDS:.0f}"
        if problem := wrong_start(each.failed_at):
            yield f"{field}.failed_at", each.failed_at, problem
        if problem := wrong_end(each.failed_at, each.until):
            yield f"{field}.until", each.until, problem
    for group, instances in registry.unregistered.items():
        for instance, since in instances.items():
            if problem := wrong_start(since):
                yield f"unregistered[{group}][{instance}]", since, problem
    for group, shortage in registry.short.items():
        if shortage.nodes <= 0:
            yield f"short[{group}].nodes", shortage.nodes, "a shortage is of nodes"
        if problem := wrong_start(shortage.since):
            yield f"short[{group}].since", shortage.since, problem
        if shortage.corrected_at is not None and (problem := wrong_start(shortage.corrected_at)):
            yield f"short[{group}].corrected_at", shortage.corrected_at, problem
