"""What agents say of their promises, refused where it cannot be: how they were kept, and their residuals. Pure."""

import msgspec

from shared import names, quantity
from shared.api import predictionprior
from shared.api.nodemetric import LastForgotten, Prediction, PriorInUse, Promise
from shared.api.predictionprior import WINDOW_DAYS, Observed
from shared.errors import InvalidInput
from shared.quantity import INT64_MAX

MOST_PROMISES = predictionprior.MOST_HORIZONS
MOST_OUTCOMES = int(24 * WINDOW_DAYS)  # one is judged for every hour
MOST_TEXT = 1024  # characters of what an agent says, as an Event is to hold it
RESOURCES = (names.CPU, names.MEMORY)


class KeptPromise(msgspec.Struct, frozen=True, gc=False):
    """One resource for one horizon; None is what the agent does not say. The peak is in milli-cores or bytes."""

    resource: str
    horizon_seconds: int
    peak: int | None
    target_percent: float | None
    outcomes: int
    violated_percent: float | None
    tail: Observed | None


def read(prediction: Prediction | None, *, source: str) -> tuple[KeptPromise, ...]:
    """Each promise by resource, with no more outcomes than four weeks can hold. Raises InvalidInput."""
    listed = (prediction.promises if prediction else None) or ()
    if len(listed) > MOST_PROMISES:
        raise _refused(source, "", len(listed), f"expected at most {MOST_PROMISES}")
    if len({one.horizon_seconds for one in listed}) < len(listed):
        raise _refused(source, "", [one.horizon_seconds for one in listed], "a horizon is there twice")
    return tuple(_read(one, resource, source) for one in listed for resource in RESOURCES)


def _read(promise: Promise, resource: str, source: str) -> KeptPromise:
    at = f"[{promise.horizon_seconds}]"
    wire = {"cpu": promise.cpu_tail, "memory": promise.memory_tail}[resource]
    violated = {"cpu": promise.cpu_violation_percent, "memory": promise.memory_violation_percent}[resource]
    if promise.outcomes < 0 or promise.horizon_seconds < 1:
        raise _refused(source, at, promise.outcomes, "expected outcomes and a horizon, neither negative")
    try:
        tail = predictionprior.reported(wire)
    except ValueError as error:
        raise _refused(source, f"{at}.{resource}Tail", msgspec.to_builtins(wire), str(error)) from error
    return KeptPromise(
        resource,
        promise.horizon_seconds,
        _peak(promise, resource, source, f"{at}.peak"),
        _percent(promise.target_violation_percent, source, f"{at}.targetViolationPercent"),
        min(promise.outcomes, MOST_OUTCOMES),
        _percent(violated, source, f"{at}.{resource}ViolationPercent"),
        tail,
    )


def _peak(promise: Promise, resource: str, source: str, field: str) -> int | None:
    text = (promise.peak or {}).get(resource)
    if text is None:
        return None
    try:
        amount = quantity.milli(text) if resource == names.CPU else quantity.whole(text)
    except ValueError as error:  # a QuantityError, or more digits than Python reads
        raise _refused(source, field, text, str(error)) from error
    if not 0 <= amount < INT64_MAX:
        raise _refused(source, field, text, "expected an amount of less than 2^63")
    return amount


def _percent(text: str | None, source: str, field: str) -> float | None:
    if text is None:
        return None
    if not 0 <= predictionprior.decimal(text) <= 100:
        raise _refused(source, field, text, "expected a number from 0 to 100")
    return predictionprior.decimal(text)


def prior(of: PriorInUse | None) -> str:
    """What a node's margins start from, in words; empty where nothing is said."""
    if of is None or not of.source:
        return ""
    return f"fleet of {of.nodes} nodes" if of.source == "fleet" else "built-in"


def forgotten(last: LastForgotten | None) -> str:
    """What was forgotten last because the Node's annotations asked for it; empty where nothing was."""
    return "" if last is None else f"{last.of[:MOST_TEXT]} until {last.until[:MOST_TEXT]}"


def _refused(source: str, at: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(source=source, field=f"status.prediction.promises{at}", value=value, problem=problem)
