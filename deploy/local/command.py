"""`headroom up` on the command line. Imports the modules of the cluster only when the command runs."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.local.options import ClusterKind, LoopbackPorts, ProfileName, SchedulerKind, UpFormat, UpOptions


def _seconds(text: str) -> float:
    from shared import durations

    try:
        seconds = durations.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if seconds <= 0:
        raise typer.BadParameter("must be more than 0")
    return seconds


def up(
    nodes: Annotated[int, typer.Option(min=0, max=1000, help="Number of simulated nodes beside this machine.")] = 5,
    trace: Annotated[
        Path | None,
        typer.Option(help="CSV file (.gz) of usage that the simulated pods follow, each series scaled to its peak."),
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.001, max=100_000, help="Speed of simulated time, relative to the clock.")
    ] = 1.0,
    keep: Annotated[
        Path | None,
        typer.Option(help="Directory that keeps the cluster's state. If it exists, the cluster continues from it."),
    ] = None,
    for_: Annotated[
        float | None,
        typer.Option("--for", parser=_seconds, metavar="DURATION", help="End after this time, for example 120s."),
    ] = None,
    output: Annotated[
        UpFormat, typer.Option("--output", "-o", help="Output format: table, or the last state as JSON.")
    ] = UpFormat.TABLE,
    profile: Annotated[
        ProfileName, typer.Option(help="demo: a day of the prediction takes 48 seconds; production: real time.")
    ] = ProfileName.DEMO,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API server (0: any).")] = 6443,
    manager_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the manager (0: any).")] = 8080,
    agent_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of this machine's agent (0: any).")] = 9316,
    cluster: Annotated[
        ClusterKind,
        typer.Option(help="The embedded API server, or a real control plane (see docs/how-to/local-cluster.md)."),
    ] = ClusterKind.EMBEDDED,
    scheduler: Annotated[
        SchedulerKind, typer.Option(help="Scheduler of the cluster. kube-scheduler needs --cluster apiserver.")
    ] = SchedulerKind.HEADROOM,
    cloud: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="File that describes the simulated cloud, or `none`. Default: a small cloud."
        ),
    ] = "",
) -> int:
    """Run a whole cluster on this machine: API server, this machine as a node, simulated nodes, agents, manager."""
    from deploy.local import up as local_cluster

    return local_cluster.run(
        UpOptions(
            nodes=nodes,
            trace=trace,
            speed=speed,
            keep=keep,
            for_seconds=for_,
            as_json=output is UpFormat.JSON,
            profile=profile,
            ports=LoopbackPorts(api=port, manager=manager_port, agent=agent_port),
            kind=cluster,
            scheduler=scheduler,
            cloud=cloud,
        )
    )
