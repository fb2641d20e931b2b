"""Writes the dashboards into the chart: `python -m deploy.monitoring`."""

import json
import sys
from pathlib import Path

from deploy.monitoring.buying import AUTOSCALER, COST
from deploy.monitoring.grafana import Json
from deploy.monitoring.lending import NODE, OVERVIEW, PREDICTION

FOLDER = Path(__file__).parents[1] / "helm" / "headroom" / "files" / "dashboards"
DASHBOARDS = (OVERVIEW, NODE, PREDICTION, AUTOSCALER, COST)


def rendered(dashboard: Json) -> str:
    return json.dumps(dashboard, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard['uid']}.json").write_text(rendered(dashboard), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
