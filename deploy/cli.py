"""The `headroom` command. Each command imports its code when it runs, so that `--help` is fast."""

import importlib.metadata
import importlib.util
import os
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from deploy import examples, garbage
from deploy.access import ClusterContext
from deploy.backtest.command import backtest
from deploy.options import (
    NAMESPACE,
    SERVICE,
    AnswerFormat,
    Context,
    Kubeconfig,
    ManagerNamespace,
    ManagerUrl,
    Output,
    ReleaseNamespace,
    Service,
    TopFormat,
    TopOrder,
)
from deploy.prices.command import prices_app
from deploy.savings.command import recommend, savings
from shared import names
from shared.errors import HeadroomError, InvalidInput
from shared.plugins import DISTRIBUTION

if TYPE_CHECKING:
    from deploy.local.home import RunningCluster

OK, FAILED, BAD_INPUT = 0, 1, 2
INTERRUPTED = 130

app = typer.Typer(
    name="headroom",
    help="Reclaims the CPU and memory a Kubernetes cluster pays for and does not use.",
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
explain_app = typer.Typer(help="Show every term of a decision", epilog=examples.EXPLAIN)
app.add_typer(explain_app, name="explain")
forget_app = typer.Typer(help="Delete what agents learned of a node or workload", epilog=examples.FORGET)
app.add_typer(forget_app, name="forget")

_PASSED_THROUGH = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


ForgetDryRun = Annotated[bool, typer.Option("--dry-run", help="Only print the requests.")]


def _add_local_cluster() -> None:
    """Adds `up` if its package is installed: it comes with a checkout, and a real cluster does not need it."""
    if importlib.util.find_spec("deploy.local") is not None:
        from deploy.local.command import up

        app.command(short_help="Run a whole cluster on this machine", epilog=examples.UP)(up)
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
    short_help="Show which nodes would be launched and deleted, and why",
    context_settings=_PASSED_THROUGH,
    add_help_option=False,
)
def plan(context: typer.Context) -> int:
    """Show which node groups would grow, at what cost, and why (see `headroom plan --help`)."""
    from deploy import plan as command

    garbage.collect_nothing()
    _print(command.main(context.args))
    return OK


app.command(short_help="Replay recorded usage to the predictors", epilog=examples.BACKTEST)(backtest)
app.command(short_help="Recommend requests and limits per container", epilog=examples.RECOMMEND)(recommend)
app.command(short_help="Show what a cluster could save, in dollars", epilog=examples.SAVINGS)(savings)
app.add_typer(prices_app, name="prices")


@explain_app.command("node", epilog=examples.EXPLAIN_NODE)
def explain_node(
    name: Annotated[str, typer.Argument(help="Name of the Node.")],
    file: Annotated[
        list[Path] | None,
        typer.Option("--file", "-f", help="Output of `kubectl get ... -o yaml`, in place of a live cluster."),
    ] = None,
    output: Output = AnswerFormat.TABLE,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    config_namespace: Annotated[
        str, typer.Option(help="Namespace of the manager's ConfigMap.")
    ] = names.INSTALL_NAMESPACE,
    config_name: Annotated[str, typer.Option(help="Name of the manager's ConfigMap.")] = names.CONFIG_MAP,
    manager: Annotated[
        str,
        typer.Option(
            metavar="URL", help="URL of the running manager, to show its own answer, with what it learned and wrote."
        ),
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


@app.command(short_help="Show nodes in a live table", epilog=examples.TOP)
def top(
    manager: ManagerUrl = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: ManagerNamespace = NAMESPACE,
    service: Service = SERVICE,
    output: Annotated[
        TopFormat,
        typer.Option("--output", "-o", help="Output format. table is live on a terminal, and printed once elsewhere."),
    ] = TopFormat.TABLE,
    sort: Annotated[TopOrder, typer.Option(help="Order of the nodes.")] = TopOrder.NAME,
    containing: Annotated[
        str, typer.Option("--filter", help="Only nodes with this text in their name or reason.")
    ] = "",
) -> int:
    """Show what each node uses, is predicted to use, and offers: a live table on a terminal."""
    from deploy.manager_api import connected
    from deploy.top import command

    manager = manager or _local_manager(kubeconfig, context)
    with connected(manager, ClusterContext(kubeconfig, context), namespace, service) as api:
        answer = command.run(api, style=output, sorting=sort, containing=containing)
    if answer:
        _print(answer)
    return OK


@app.command(short_help="Show the manager's page in the browser", epilog=examples.PAGE)
def page(
    manager: ManagerUrl = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: ManagerNamespace = NAMESPACE,
    service: Service = SERVICE,
    browser: Annotated[bool, typer.Option(help="Open it in the browser, or only print the address.")] = True,
) -> int:
    """Show the manager's page in the browser, with your own rights in the cluster."""
    from deploy import page as command
    from deploy.manager_api import connected

    manager = manager or _local_manager(kubeconfig, context)
    with connected(manager, ClusterContext(kubeconfig, context), namespace, service) as api:
        command.run(api, browse=browser, say=_print)
    return OK


@app.command(short_help="Show what each namespace or team costs", epilog=examples.COST)
def cost(
    label: Annotated[str, typer.Option(metavar="KEY", help="Divide by the values of this pod label.")] = "",
    top: Annotated[int, typer.Option(min=1, max=1000, help="Number of rows, the most expensive first.")] = 20,
    manager: ManagerUrl = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: ManagerNamespace = NAMESPACE,
    service: Service = SERVICE,
    output: Output = AnswerFormat.TABLE,
) -> int:
    """Show what the pods of each namespace request, at the prices of their nodes, or those of each value of a label."""
    from deploy import costs
    from deploy.manager_api import connected

    manager = manager or _local_manager(kubeconfig, context)
    with connected(manager, ClusterContext(kubeconfig, context), namespace, service) as api:
        _print(costs.run(api, label=label, top=top, style=output))
    return OK


@app.command(short_help="Check a cluster before and after the installation", epilog=examples.CHECK)
def check(
    manager: ManagerUrl = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: ReleaseNamespace = NAMESPACE,
    service: Service = SERVICE,
    output: Output = AnswerFormat.TABLE,
) -> int:
    """Check what the cluster has for Headroom, before and after the installation. Exit status 1 if anything is bad."""
    from deploy.check import command

    if not manager and (local := _local_cluster(kubeconfig, context)) is not None:
        manager, kubeconfig = local.manager_url, local.kubeconfig
    access = ClusterContext(kubeconfig, context)
    found = command.report(access, namespace=namespace, manager=manager, service=service)
    _print(command.rendered(found, output.value))
    return OK if found.has_passed else FAILED


@app.command(
    "support-bundle", short_help="Collect what a maintainer needs, without secrets", epilog=examples.SUPPORT_BUNDLE
)
def support_bundle(
    to: Annotated[Path, typer.Option(help="File to write.")] = Path("headroom-support.tar.gz"),
    manager: ManagerUrl = "",
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: ReleaseNamespace = NAMESPACE,
    service: Service = SERVICE,
) -> int:
    """Write one archive of versions, checks, objects, Events and the manager's answers. Secrets are never read."""
    from deploy.support import bundle

    if not manager and (local := _local_cluster(kubeconfig, context)) is not None:
        manager, kubeconfig = local.manager_url, local.kubeconfig
    access = ClusterContext(kubeconfig, context)
    missing = bundle.write(to, access, namespace=namespace, manager=manager, service=service)
    for each in missing:
        print(f"headroom: left out: {each}", file=sys.stderr)
    _print(f"{to}: read it before you send it")
    return OK


@app.command(short_help="Remove what the manager left in a cluster", epilog=examples.CLEANUP)
def cleanup(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    namespace: ManagerNamespace = NAMESPACE,
    offers: Annotated[
        list[names.Tier] | None, typer.Option(help="Tiers that the manager offered. Default: all. Repeatable.")
    ] = None,
    status_config_map_name: Annotated[
        str, typer.Option(help="Name of the autoscaler's status ConfigMap.")
    ] = "cluster-autoscaler-status",
    simulated_cloud: Annotated[
        bool, typer.Option("--simulated-cloud", help="Also delete the Nodes that a simulated cloud created.")
    ] = False,
    pods: Annotated[
        str,
        typer.Option(
            help=(
                "Pods that request Mid or Batch. keep: they continue, and their Nodes keep showing what they "
                "request; drain: evict them first."
            ),
        ),
    ] = "keep",
    state_daemonset: Annotated[
        str, typer.Option(help="Wait for this DaemonSet, which deletes the agents' state from the nodes.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
) -> int:
    """Remove what the manager left in a cluster: Mid and Batch on Nodes, its NodeMetrics, Lease and ConfigMaps."""
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


@forget_app.command("node", epilog=examples.FORGET_NODE)
def forget_node(
    nodes: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names of the Nodes.")],
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    dry_run: ForgetDryRun = False,
) -> int:
    """Delete what the agents of Nodes have learned until now, for nodes with a new purpose."""
    from deploy.forget import Asking

    with Asking(ClusterContext(kubeconfig, context), now=time.time(), dry_run=dry_run, say=_print) as asking:
        asking.nodes(nodes)
    return OK


@forget_app.command("workload", epilog=examples.FORGET_WORKLOAD)
def forget_workload(
    workload: Annotated[str, typer.Argument(metavar="NAMESPACE/KIND/NAME", help="For example default/Deployment/web.")],
    nodes: Annotated[
        list[str] | None, typer.Option("--nodes", metavar="NAME", help="Only on this Node. Repeatable.")
    ] = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    dry_run: ForgetDryRun = False,
) -> int:
    """Delete what agents have learned of a workload and its pods until now, on all Nodes or on some."""
    from deploy.forget import Asking

    with Asking(ClusterContext(kubeconfig, context), now=time.time(), dry_run=dry_run, say=_print) as asking:
        asking.workload(workload, nodes or [])
    return OK


def _local_manager(kubeconfig: Path | None, context: str) -> str:
    """The manager of `_local_cluster`; else empty."""
    found = _local_cluster(kubeconfig, context)
    return "" if found is None else found.manager_url


def _local_cluster(kubeconfig: Path | None, context: str) -> "RunningCluster | None":
    """The one `headroom up` of this user that runs, where no other cluster is named."""
    if kubeconfig or context or importlib.util.find_spec("deploy.local") is None:
        return None
    from deploy.local import home

    named = os.environ.get("KUBECONFIG")
    found = [each for each in home.running() if not named or Path(named) == each.kubeconfig]
    if len(found) > 1:
        urls = ", ".join(each.manager_url for each in found)
        problem = f"{len(found)} local clusters run, so that one has to be named: {urls}"
        raise InvalidInput(source="command line", field="--manager", value="", problem=problem)
    if not found:
        return None
    text = f"headroom: the local cluster {found[0].cluster_id}; --kubeconfig or --manager names another"
    print(text, file=sys.stderr, flush=True)
    return found[0]


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
        print(f"headroom {importlib.metadata.version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback(epilog=f"{examples.HEADROOM}\n\nExit status: 0 done, 1 failed, 2 bad usage or bad input.")
def headroom(
    _version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version of this command.")
    ] = False,
) -> None:
    """Reclaims the CPU and memory a Kubernetes cluster pays for and does not use."""


@app.command(short_help="Show versions, here and in the cluster", epilog=examples.VERSION)
def version(
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    client: Annotated[bool, typer.Option("--client", help="Show only the version of this command.")] = False,
    output: Output = AnswerFormat.TABLE,
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
    except ModuleNotFoundError as error:
        _fail(
            f"this needs the package {error.name}, which is not installed; the manager's image runs `cleanup`", FAILED
        )
    except typer.Abort:  # what the parser makes of Ctrl-C
        sys.exit(INTERRUPTED)


def _fail(message: str, status: int) -> NoReturn:
    print(f"headroom: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
