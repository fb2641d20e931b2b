"""A Node's annotations that ask its agent to forget: everything it predicts from, or some workloads. Pure."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from shared import durations, names
from shared.errors import InvalidInput

NODE: Final = ""  # the key for everything; other keys are a workload's "namespace/Kind/name"
MOST_WORKLOADS: Final = 64  # that a Node may name, and that are remembered as forgotten
LONGEST_ANNOTATION: Final = 64 << 10  # characters
_LONGEST_WORKLOAD = 1024


class Wanted(NamedTuple):
    """The instants (Unix seconds) up to which to forget, by node or workload; and the problems of the rest."""

    until: Mapping[str, float]
    problems: tuple[str, ...] = ()


NOTHING: Final = Wanted({})


def read(annotations: Mapping[str, str]) -> Wanted:
    """The requests in the annotations. An invalid annotation is refused alone."""
    until: dict[str, float] = {}
    problems = []
    for annotation, meaning in ((names.ANNOTATION_FORGET, _node), (names.ANNOTATION_FORGET_WORKLOADS, workloads)):
        text = annotations.get(annotation)
        if text is not None:
            try:
                until |= meaning(text)
            except InvalidInput as problem:
                problems.append(str(problem))
    return Wanted(until, tuple(problems))


def due(wanted: Wanted, forgotten: Mapping[str, float], now: float) -> Wanted:
    """The part to forget now: instants in the past, and later than what was forgotten before."""
    ahead = [of or "node" for of, until in wanted.until.items() if until > now]
    problems = [f"Node annotation: forget {of}: lies in the future" for of in sorted(ahead)]
    asked = {of: until for of, until in wanted.until.items() if forgotten.get(of, 0.0) < until <= now}
    return Wanted(asked, (*wanted.problems, *problems))


def newest(forgotten: Mapping[str, float]) -> dict[str, float]:
    """The latest entries, as many as are remembered."""
    ordered = sorted(forgotten.items(), key=lambda item: item[1], reverse=True)
    return dict(ordered[: MOST_WORKLOADS + 1])


def workloads(text: str) -> dict[str, float]:
    """Up to which instant to forget, by workload. Raises InvalidInput."""
    field = names.ANNOTATION_FORGET_WORKLOADS
    try:
        asked = msgspec.json.decode(text[: LONGEST_ANNOTATION + 1], type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise _refused(field, text, f"expected a JSON object of times by workload: {error}") from error
    if len(asked) > MOST_WORKLOADS:
        raise _refused(field, len(asked), f"expected at most {MOST_WORKLOADS} workloads")
    return {workload(of): _instant(until, field) for of, until in asked.items()}


def workload(text: str) -> str:
    """ "namespace/Kind/name", unchanged. Raises InvalidInput."""
    if len(text) > _LONGEST_WORKLOAD or len(text.split("/")) != 3 or not all(text.split("/")):
        raise _refused(names.ANNOTATION_FORGET_WORKLOADS, text, "expected NAMESPACE/KIND/NAME")
    return text


def _node(text: str) -> dict[str, float]:
    return {NODE: _instant(text, names.ANNOTATION_FORGET)}


def _refused(field: str, value: object, problem: str) -> InvalidInput:
    return InvalidInput(source="Node annotation", field=field, value=value, problem=problem)


def _instant(text: str, field: str) -> float:
    try:
        return durations.instant(text)
    except (ValueError, OverflowError) as error:
        raise _refused(field, text, str(error)) from error
