"""`headroom cost`: what teams cost, by namespace or by the values of a label, as the running manager says."""

from collections.abc import Sequence
from urllib.parse import urlencode

import httpx

from deploy.manager_api import ManagerApi
from deploy.rendering import HOURS_PER_MONTH, UNKNOWN, approximate, more, structured, table
from manager.autoscaler.cloudprovider.node_template import LABEL_KEY
from manager.autoscaler.reporting.cost_division import LabelCosts, LabelRow, NamespaceCosts, NamespaceRow
from manager.autoscaler.reporting.group_rows import Groups
from shared.errors import HeadroomError, InvalidInput

PATH, GROUPS = "/api/v1/costs", "/api/v1/groups"


def run(api: ManagerApi, *, label: str, top: int, style: str) -> str:
    """The text to print. Raises InvalidInput for what is no key of a label, and HeadroomError."""
    if label and not LABEL_KEY.fullmatch(label):
        raise InvalidInput(source="command line", field="--label", value=label, problem="not the key of a label")
    if api.get(GROUPS).status_code == httpx.codes.NOT_FOUND:
        raise HeadroomError(f"{api.url}: this manager runs no autoscaler, so it knows no costs")
    query = urlencode({"key": label, "limit": top} if label else {"limit": top})
    answer: LabelCosts | NamespaceCosts
    if label:
        answer = api.read(f"{PATH}/labels?{query}", LabelCosts)
    else:
        answer = api.read(f"{PATH}/namespaces?{query}", NamespaceCosts)
    if style != "table":
        return structured(answer, style)
    return _table(answer, is_estimated=api.read(GROUPS, Groups).cost_per_hour.estimated > 0)


def _table(answer: LabelCosts | NamespaceCosts, *, is_estimated: bool) -> str:
    def monthly(per_hour: float | None) -> str:
        text = UNKNOWN if per_hour is None else f"{per_hour * HOURS_PER_MONTH:,.2f}"
        return approximate(text, estimated=is_estimated)

    rows: Sequence[LabelRow | NamespaceRow] = answer.values if isinstance(answer, LabelCosts) else answer.namespaces
    heading = f"LABEL {answer.key}" if isinstance(answer, LabelCosts) else "NAMESPACE"
    lines = [(_name(row), monthly(row.requested), monthly(row.used)) for row in rows]
    return "\n".join(
        [
            *table((heading, ">REQUESTED $/MONTH", ">USED AS MID AND BATCH $/MONTH"), lines),
            *more(answer.total, len(rows), "--top shows more"),
            f"{monthly(answer.idle)} $/month is requested by no pod. Mid and Batch are not bought.",
        ]
    )


def _name(row: LabelRow | NamespaceRow) -> str:
    if isinstance(row, NamespaceRow):
        return row.namespace
    return "(without the label)" if row.value is None else row.value or '""'
