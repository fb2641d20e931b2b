"""The `headroom` command. Each command imports its code when it runs, so that `--help` is fast."""

import enum
import importlib.metadata
import importlib.util
import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from deploy import garbage
from deploy.access import ClusterContext
from deploy.backtest.command import backtest
from deploy.prices.command import prices_app
from deploy.savings.command import recommend, savings
from shared import names
from shared.errors import HeadroomError, InvalidInput

OK, FAILED, BAD_INPUT = 0, 1, 2

app = typer.Typer(
    name="headroom",
    help="Reclaims the CPU and memory a Kubernetes cluster pays for and does not use.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
explain_app = typer.Typer(help="Show every term of a decision")
app.add_typer(explain_app, name="explain")
forget_app = typer.Typer(help="Ask agents to forget what they predict from")
app.add_typer(forget_app, name="forget")

_PASSED_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


Kubeconfig = Annotated[Path | None, typer.Option(help="Kubeconfig of the cluster.")]
Context = Annotated[str, typer.Option(help="Context of the kubeconfig.")]
ManagerUrl = Annotated[
    str, typer.Option(metavar="URL", help="The manager; without one `kubectl port-forward` reaches it.")
]
Service = Annotated[str, typer.Option(help="Service of the manager.")]
SERVICE = "headroom-manager"
ForgetDryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be asked.")]


class ExplainFormat(enum.StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


Output = Annotated[ExplainFormat, typer.Option("--output", "-o", help="How to print it.")]


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
    AGE = "age"


def _add_local_cluster() -> None:
    """Adds `up` if its package is installed: it comes with a checkout, and a real cluster does not need it."""
    if importlib.util.find_spec("deploy.local") is not None:
        from deploy.local.command import up

        app.command(short_help="Run a whole cluster on this machine")(up)
    else:
        app.command("up", hidden=True, context_settings=_PASSED_THROUGH, add_help_option=False)(_no_local_cluster)


def _no_local_cluster() -> NoReturn:
    problem = "the local cluster is not part of this installation; `make run` starts it in a checkout of the repository"
    _fail(f"up: {problem}", BAD_INPUT)


_add_local_cluster()


@app.command(short_help="Run the agent of one node", context_settings=_PASSED_THROUGH, add_help_option=False)
def agent(context: typer.Context) -> int:
    """Run the agent of one node (see `headroom agent --help`)."""
    from agent import main as daemon

    return daemon.main(context.args)


@app.command(short_help="Run the manager", context_settings=_PASSED_THROUGH, add_help_option=False)
def manager(context: typer.Context) -> int:
    """Run the manager (see `headroom manager --help`)."""
    from manager import main as daemon

    return daemon.main(context.args)


@app.command(
    short_help="Show which nodes would be bought and removed, and why",
    context_settings=_PASSED_THROUGH,
    add_help_option=False,
)
def plan(context: typer.Context) -> int:
    """Show which node groups would grow, at what cost, and why (see `headroom plan --help`)."""
    from deploy import plan as command

    garbage.collect_nothing()
    _print(command.main(context.args))
    return OK


app.command(short_help="Replay recorded usage to the predictors")(backtest)
app.command(short_help="Recommend requests and limits per container")(recommend)
app.command(short_help="Show what a cluster could save, in dollars")(savings)
app.add_typer(prices_app, name="prices")


@explain_app.command("node")
def explain_node(
    name: Annotated[str, typer.Argument(help="Name of the Node.")],
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="What `kubectl get ... -o yaml` printed, instead of a live cluster."),
    ] = None,
    output: Output = ExplainFormat.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
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

    garbage.collect_nothing()
    if manager and file:
        raise typer.BadParameter("a manager answers of its own cluster, not of files", param_hint="--manager")
    access = ClusterContext(kubeconfig, context)
    if manager:
        _print(command.by_manager(name, manager, style=output, access=access, namespace=config_namespace))
    else:
        key = ConfigKey(config_namespace, config_name)
        _print(command.node(name, files=file or [], access=access, style=output, config_key=key))
    return OK


@app.command(short_help="Show nodes in a live table")
def top(
    manager: ManagerUrl = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Namespace of the manager.")] = (
        names.INSTALL_NAMESPACE
    ),
    service: Service = SERVICE,
    output: Annotated[
        TopFormat, typer.Option("--output", "-o", help="table: live on a terminal, printed once elsewhere.")
    ] = TopFormat.TABLE,
    sort: Annotated[TopOrder, typer.Option(help="What comes first.")] = TopOrder.NAME,
    containing: Annotated[str, typer.Option("--filter", help="Only nodes with this in their name or reason.")] = "",
) -> int:
    """Show what each node uses, is predicted to use, and offers: a live table on a terminal."""
    from deploy.manager_api import connected
    from deploy.top import command

    with connected(manager, ClusterContext(kubeconfig, context), namespace, service) as api:
        answer = command.run(api, style=output, sorting=sort, containing=containing)
    if answer:
        _print(answer)
    return OK


@app.command(short_help="Show the manager's page in the browser")
def page(
    manager: ManagerUrl = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: Annotated[str, typer.Option(help="Namespace of the manager.")] = names.INSTALL_NAMESPACE,
    service: Service = SERVICE,
    browser: Annotated[bool, typer.Option(help="Open it in the browser, or only print the address.")] = True,
) -> int:
    """Show the manager's page in the browser, with your own rights in the cluster."""
    from deploy import page as command
    from deploy.manager_api import connected

    with connected(manager, ClusterContext(kubeconfig, context), namespace, service) as api:
        command.run(api, browse=browser, say=_print)
    return OK


@app.command(short_help="Remove what the manager left in a cluster")
def cleanup(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
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
    pods: Annotated[
        str,
        typer.Option(
            help="Pods that hold Mid or Batch. keep: they run on, and their Nodes keep what they hold; drain: they are "
            "evicted first.",
        ),
    ] = "keep",
    state_daemonset: Annotated[
        str, typer.Option(help="DaemonSet that removes what agents have learnt from nodes: it is waited for.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
) -> int:
    """Remove what the manager left in a cluster: Mid and Batch on Nodes, NodeMetrics it created, Lease and notes."""
    from deploy import cleanup as command
    from deploy.cleanup_pods import PodCleanup
    from shared.kube.client import Client

    if pods not in tuple(PodCleanup):
        raise InvalidInput(source="command line", field="--pods", value=pods, problem="must be keep or drain")
    past = command.FormerManager(
        offers or command.ALL_TIERS, status_config_map_name, simulated_cloud, PodCleanup(pods), state_daemonset
    )
    client = Client(ClusterContext(kubeconfig, context).connection(), "headroom-cleanup", retry=command.RETRY)
    with closing(client):
        command.clean(client, namespace=namespace, dry_run=dry_run, say=print, past=past)
    return OK


@forget_app.command("node")
def forget_node(
    nodes: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of the Nodes.")],
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    dry_run: ForgetDryRun = False,
) -> int:
    """Let the agents of Nodes forget everything that was recorded until now: a node that became another one."""
    from deploy.forget import Asking

    with Asking(ClusterContext(kubeconfig, context), now=time.time(), dry_run=dry_run, say=_print) as asking:
        asking.nodes(nodes)
    return OK


@forget_app.command("workload")
def forget_workload(
    workload: Annotated[str, typer.Argument(metavar="NAMESPACE/KIND/NAME", help="As default/Deployment/web.")],
    nodes: Annotated[
        list[str] | None, typer.Option("--nodes", metavar="NAME", help="Only on this Node (repeatable).")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    dry_run: ForgetDryRun = False,
) -> int:
    """Let agents forget what a workload and its pods used until now, on all Nodes or on some."""
    from deploy.forget import Asking

    with Asking(ClusterContext(kubeconfig, context), now=time.time(), dry_run=dry_run, say=_print) as asking:
        asking.workload(workload, nodes or [])
    return OK


def _print(answer: str) -> None:
    """Raises HeadroomError if the output cannot be written; a reader that stops early, as `head` does, is no error."""
    try:
        print(answer, flush=True)
    except BrokenPipeError:
        _forget_output()
    except (OSError, UnicodeError) as error:
        _forget_output()
        raise HeadroomError(f"the answer cannot be written: {error}") from error


def _forget_output() -> None:
    """Drops the rest of the output: Python flushes it at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"headroom {importlib.metadata.version('headroom')}")
        raise typer.Exit


@app.callback(epilog="Exit status: 0 done, 1 failed, 2 bad usage or bad input.")
def headroom(
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version of this command.")
    ] = False,
) -> None:
    """Reclaims the CPU and memory a Kubernetes cluster pays for and does not use."""


@app.command(short_help="Show versions, here and in the cluster")
def version(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    client: Annotated[bool, typer.Option("--client", help="Ask no cluster.")] = False,
    output: Output = ExplainFormat.TABLE,
) -> int:
    """Show the versions of this command, and of what is installed in the cluster."""
    from deploy import versions as command

    _print(command.run(None if client else ClusterContext(kubeconfig, context), output.value))
    return OK


def main() -> None:
    """Entry point. Exit status 0: done, 1: failed, 2: bad usage or bad input."""
    called = Path(sys.argv[0]).name
    program = called.replace("-", " ", 1) if called.startswith("kubectl-") else "headroom"
    arguments = sys.argv[1:] or ["--help"]
    try:
        sys.exit(app(arguments, prog_name=program, standalone_mode=False) or OK)
    except TyperException as error:  # a flag or a value that the parser refuses
        _fail(error.format_message(), BAD_INPUT)
    except InvalidInput as error:
        _fail(str(error), BAD_INPUT)
    except HeadroomError as error:
        _fail(str(error), FAILED)
    except typer.Abort:
        _fail("aborted", FAILED)


def _fail(message: str, status: int) -> NoReturn:
    print(f"headroom: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
