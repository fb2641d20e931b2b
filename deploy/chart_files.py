"""Generates the chart's files that follow from the code: `python -m deploy.chart_files`.

files/cloudproviders holds the permissions and settings of each built-in cloud provider, from the `chart.yaml` beside
its code; files/crds holds the custom resource definitions, from the structs of `shared.api` (see `crds`).
"""

import sys
from pathlib import Path

from deploy import crds

ROOT = Path(__file__).parent.parent
FILES = Path("deploy", "helm", "headroom", "files")
PROVIDERS = Path("manager", "autoscaler", "cloudprovider")


def generated() -> dict[Path, str]:
    """The texts by path in the repository."""
    needs = sorted((ROOT / PROVIDERS).glob("*/chart.yaml"))
    return {
        **{FILES / "cloudproviders" / f"{each.parent.name}.yaml": each.read_text("utf-8") for each in needs},
        **{FILES / "crds" / f"{resource}.yaml": crds.rendered(resource) for resource in crds.RESOURCES},
    }


def main() -> int:
    for path, text in generated().items():
        (ROOT / path).parent.mkdir(exist_ok=True)
        (ROOT / path).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
