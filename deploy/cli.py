"""The `headroom` command. Each command imports what it needs when it runs, so that `--help` comes at once."""

import enum
import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from shared import names
from shared.errors import HeadroomError, InvalidInput

OK, FAILED, BAD_INPUT = 0, 1, 2

app = typer.Typer(
    name="headroom",
    help="Reclaims the CPU and memory a Kubernetes cluster pays for and does not use.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
explain_app = typer.Typer(help="Show every term of a decision.")
app.add_typer(explain_app, name="explain")

_PASSED_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


class UpFormat(enum.StrEnum):
    TABLE = "table"
    JSON = "json"


class ExplainFormat(enum.StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


class ProfileChoice(enum.StrEnum):
    DEMO = "demo"
    PRODUCTION = "production"


class ClusterChoice(enum.StrEnum):
    EMBEDDED = "embedded"
    APISERVER = "apiserver"


class SchedulerChoice(enum.StrEnum):
    HEADROOM = "headroom"
    KUBE = "kube-scheduler"


def _seconds(text: str) -> float:
    from shared import durations

    try:
        seconds = durations.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if seconds <= 0:
        raise typer.BadParameter("must be more than 0")
    return seconds


@app.command()
def up(
    nodes: Annotated[int, typer.Option(min=0, max=1000, help="Simulated nodes beside this machine.")] = 5,
    trace: Annotated[
        Path | None,
        typer.Option(help="CSV file (.gz) whose series the simulated pods follow, each scaled to its peak."),
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.001, max=100_000, help="How much faster than the clock simulated time runs.")
    ] = 1.0,
    keep: Annotated[
        Path | None, typer.Option(help="Directory of the cluster's state, continued from if it is there.")
    ] = None,
    for_: Annotated[
        float | None, typer.Option("--for", parser=_seconds, metavar="DURATION", help="End after, for example, 120s.")
    ] = None,
    output: Annotated[
        UpFormat, typer.Option("--output", "-o", help="table, or the last state as JSON.")
    ] = UpFormat.TABLE,
    profile: Annotated[ProfileChoice, typer.Option(help="How fast the prediction learns.")] = ProfileChoice.DEMO,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API server (0: any).")] = 6443,
    manager_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the manager (0: any).")] = 8080,
    agent_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of this machine's agent (0: any).")] = 9316,
    cluster: Annotated[
        ClusterChoice, typer.Option(help="The embedded API server, or a real control plane (see the README).")
    ] = ClusterChoice.EMBEDDED,
    scheduler: Annotated[
        SchedulerChoice, typer.Option(help="Who places pods; kube-scheduler needs --cluster apiserver.")
    ] = SchedulerChoice.HEADROOM,
    cloud: Annotated[
        str, typer.Option(metavar="FILE", help="Simulated cloud to buy nodes from, or none; a small one if not given.")
    ] = "",
) -> int:
    """Run a whole cluster on this machine: API server, this machine as a node, simulated nodes, agents, manager."""
    from deploy.local import up as command
    from deploy.local.cluster import ClusterKind, Ports, SchedulerKind
    from deploy.local.profile import ProfileName

    return command.run(
        command.UpOptions(
            nodes=nodes,
            trace=trace,
            speed=speed,
            keep=keep,
            for_seconds=for_,
            as_json=output is UpFormat.JSON,
            profile=ProfileName(profile),
            ports=Ports(api=port, manager=manager_port, agent=agent_port),
            kind=ClusterKind(cluster),
            scheduler=SchedulerKind(scheduler),
            cloud=cloud,
        )
    )


@app.command(context_settings=_PASSED_THROUGH, add_help_option=False)
def agent(context: typer.Context) -> int:
    """Run the agent of one node (see `headroom agent --help`)."""
    from agent import main as daemon

    return daemon.main(context.args)


@app.command(context_settings=_PASSED_THROUGH, add_help_option=False)
def manager(context: typer.Context) -> int:
    """Run the manager (see `headroom manager --help`)."""
    from manager import main as daemon

    return daemon.main(context.args)


@app.command(context_settings=_PASSED_THROUGH, add_help_option=False)
def plan(context: typer.Context) -> int:
    """Show which node groups would grow, at what cost, and why (see `headroom plan --help`)."""
    from deploy import plan as command

    print(command.main(context.args))
    return OK


@explain_app.command("node")
def explain_node(
    name: Annotated[str, typer.Argument(help="Name of the Node.")],
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="What `kubectl get ... -o yaml` printed, instead of a live cluster."),
    ] = None,
    output: Annotated[ExplainFormat, typer.Option("--output", "-o", help="How to print it.")] = ExplainFormat.TABLE,
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig of the live cluster.")] = None,
    config_namespace: Annotated[
        str, typer.Option(help="Namespace of the manager's ConfigMap.")
    ] = names.INSTALL_NAMESPACE,
    config_name: Annotated[str, typer.Option(help="Name of the manager's ConfigMap.")] = names.CONFIG_MAP,
    manager: Annotated[
        str,
        typer.Option(metavar="URL", help="The running manager, to show its own answer with what it learned and wrote."),
    ] = "",
) -> int:
    """Show every term of what NODE offers to Mid and Batch, and which one decided."""
    from deploy import explain as command
    from deploy.nodeside import ConfigKey

    if manager and file:
        raise typer.BadParameter("a manager answers of its own cluster, not of files", param_hint="--manager")
    if manager:
        print(command.by_manager(name, manager, style=output.value))
        return OK
    key = ConfigKey(config_namespace, config_name)
    print(command.node(name, files=file or [], kubeconfig=kubeconfig, style=output.value, config_key=key))
    return OK


@app.command()
def cleanup(
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig of the cluster.")] = None,
    namespace: Annotated[str, typer.Option(help="Namespace the manager ran in.")] = names.INSTALL_NAMESPACE,
    offers: Annotated[
        list[names.Tier] | None, typer.Option(help="What the manager offered, where that was not all (repeatable).")
    ] = None,
    status_config_map_name: Annotated[
        str, typer.Option(help="ConfigMap of the autoscaler's status, where it had a name of its own.")
    ] = "cluster-autoscaler-status",
    simulated_cloud: Annotated[
        bool, typer.Option("--simulated-cloud", help="Delete the Nodes that a simulated cloud made, too.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> int:
    """Remove what the manager left in a cluster: Mid and Batch on Nodes, NodeMetrics it created, Lease and notes."""
    from deploy import cleanup as command

    past = command.Past(offers or command.ALL_TIERS, status_config_map_name, simulated_cloud)
    command.run(kubeconfig=kubeconfig, namespace=namespace, dry_run=dry_run, say=print, past=past)
    return OK


def main() -> None:
    """Entry point. Exit status 0: done, 1: failed, 2: bad usage or bad input."""
    arguments = sys.argv[1:] or ["--help"]
    try:
        sys.exit(app(arguments, standalone_mode=False) or OK)
    except TyperException as error:  # a flag or a value that the parser refuses
        _fail(error.format_message(), BAD_INPUT)
    except InvalidInput as error:
        _fail(str(error), BAD_INPUT)
    except HeadroomError as error:
        _fail(str(error), FAILED)
    except typer.Abort:
        _fail("aborted", FAILED)


def _fail(message: str, status: int) -> None:
    print(f"headroom: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
