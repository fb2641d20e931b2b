"""Reads from an agent's API or state folder how the promises of its models turned out.

It replays nothing, and writes nothing to the folder.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from agent.predict_server import states, truth
from agent.predict_server.checkpoint import UnusableCheckpoint
from deploy import rendering
from deploy.backtest import agents
from deploy.backtest.server import Access, PrometheusServer, read
from shared.errors import InvalidInput
from shared.recommendation import ModelRecommendation, Row, recommend

_OPTION = "--from-agent"


class JudgedModel(msgspec.Struct, frozen=True):
    """One model over the last 28 days, for the horizon that decides what is lent; percentages of outcomes and of
    requests.
    """

    model: str
    outcomes: int
    cpu_violation_percent: float | None
    memory_violation_percent: float | None
    cpu_lent_percent: float | None
    memory_lent_percent: float | None

    def row(self) -> Row:
        violations = (self.cpu_violation_percent or 0.0, self.memory_violation_percent or 0.0)
        return Row(
            self.model, self.outcomes, violations, (self.cpu_lent_percent or 0.0, self.memory_lent_percent or 0.0)
        )


class JudgedModels(msgspec.Struct, frozen=True):
    """The models of one agent, the active one first."""

    source: str
    target_percent: float
    models: tuple[JudgedModel, ...]
    recommended: ModelRecommendation


class _Said(msgspec.Struct, frozen=True):
    """One model in the answer; only its peak is known if the model does not run on the node."""

    outcomes: int | None = None
    cpu_violation_percent: float | None = None
    memory_violation_percent: float | None = None
    cpu_lent_percent: float | None = None
    memory_lent_percent: float | None = None


class _Prediction(msgspec.Struct, frozen=True):
    """The fields read from /api/v1/prediction."""

    model: str
    models: Mapping[str, _Said]


def judged(source: str, target_percent: float, access: Access) -> JudgedModels:
    """The models of an agent, by its URL or its state folder. Raises InvalidInput and HeadroomError."""
    models = _of_api(source, access) if "://" in source else _of_folder(Path(source))
    return JudgedModels(source, target_percent, models, recommend([model.row() for model in models], target_percent))


def render(found: JudgedModels, style: str) -> str:
    """The models as "table", "json" or "csv"."""
    if style == "json":
        document = msgspec.structs.asdict(found) | {"recommended": msgspec.to_builtins(found.recommended)}
        return rendering.structured(document, style)
    if style == "csv":
        return rendering.sheet(JudgedModel.__struct_fields__, map(msgspec.structs.asdict, found.models))
    rows = []
    for model in found.models:
        name, outcomes, *percents = msgspec.structs.astuple(model)
        cells = (rendering.UNKNOWN if percent is None else f"{percent:.2f} %" for percent in percents)
        rows.append((name, str(outcomes), *cells))
    header = ("MODEL", ">OUTCOMES", ">CPU VIOLATIONS", ">MEMORY VIOLATIONS", ">CPU LENT", ">MEMORY LENT")
    return "\n".join([*rendering.table(header, rows), "", found.recommended.sentence])


def _of_api(url: str, access: Access) -> tuple[JudgedModel, ...]:
    with PrometheusServer(url, access) as server:
        found = read(server, "/api/v1/prediction", _Prediction)
    known = {name: said for name, said in found.models.items() if said.outcomes is not None}
    if found.model not in known:
        problem = "nothing is predicted there yet, or the agent keeps no outcomes by model"
        raise InvalidInput(source=server.name, field="models", value=sorted(found.models), problem=problem)
    names = [found.model, *(name for name in known if name != found.model)]
    return tuple(JudgedModel(name, **msgspec.structs.asdict(known[name])) for name in names)


def _of_folder(folder: Path) -> tuple[JudgedModel, ...]:
    """The models in the newest readable checkpoint."""
    parts: states.Parts = {}
    for content in agents.checkpoints(folder):
        try:
            parts = states.decode(content.outcomes)
            records = truth.restored_records(parts)
        except (UnusableCheckpoint, ValueError):
            continue
        active = truth.in_force(parts)
        if active in records:
            break
    else:
        problem = "no checkpoint in it has outcomes of predictions"
        raise InvalidInput(source="command line", field=_OPTION, value=str(folder), problem=problem)

    def model(identity: str) -> JudgedModel:
        kept = records[identity].kept()[0]
        pairs = (*kept.violation_percents, *kept.lent_percents)
        return JudgedModel(
            _name(identity), kept.outcomes, *(round(each, 3) if kept.outcomes else None for each in pairs)
        )

    return tuple(model(identity) for identity in sorted(records, key=lambda one: (one != active, one)))


def _name(identity: str) -> str:
    """The predictor's name without the parameters that the policy sets."""
    names = identity.partition(" ")[0]
    return f"max({names})" if "," in names else names
