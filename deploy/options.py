"""The options that several commands share."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from shared import names

SERVICE = "headroom-manager"


class AnswerFormat(enum.StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class TopFormat(enum.StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


class TopOrder(enum.StrEnum):
    NAME = "name"
    MID = "mid"
    USED = "used"
    MEMORY = "memory"
    AGE = "age"


Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig of the cluster.")]
Context = Annotated[str, typer.Option(help="Context of the kubeconfig.")]
ManagerUrl = Annotated[
    str,
    typer.Option(
        metavar="URL",
        help="URL of the manager. Default: a running `headroom up`, or else the cluster's, by `kubectl port-forward`.",
    ),
]
ManagerNamespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the manager.")]
ReleaseNamespace = Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the release.")]
Service = Annotated[str, typer.Option(help="Service of the manager.")]
Output = Annotated[AnswerFormat, typer.Option("--output", "-o", help="Output format.")]
NAMESPACE = names.INSTALL_NAMESPACE
