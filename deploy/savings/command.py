"""The command line of `headroom recommend` and `headroom savings`. It imports its code only when it runs."""

import enum
from pathlib import Path
from typing import Annotated

import typer

from shared import names

# The options that `recommend` and `savings` share.
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "--file",
        "-f",
        help=(
            "Output of `kubectl get nodes,pods,... -A -o json`, in place of a live cluster; -: standard "
            "input. Repeatable."
        ),
    ),
]
PrometheusUrl = Annotated[
    str, typer.Option(metavar="URL", help="Prometheus with cAdvisor's series of container usage.")
]
AgentUrls = Annotated[
    list[str] | None,
    typer.Option("--agent", metavar="URL", help="Agent of a node, for a week of its pods' usage. Repeatable."),
]
AgentsNamespace = Annotated[
    str,
    typer.Option(help="Namespace of the agents of a live cluster, which are read through its API server. Empty: none."),
]
HistoryDays = Annotated[float, typer.Option(min=0.1, max=90, help="Days of history to read.")]
Until = Annotated[str, typer.Option(help="End of the history in RFC 3339. Default: now, or the time of the dump.")]
Kubeconfig = Annotated[str, typer.Option(help="Kubeconfig of the live cluster.")]
Context = Annotated[str, typer.Option(help="Context of the kubeconfig.")]
Prices = Annotated[
    str, typer.Option(help="auto for the tables of AWS, Azure and Google, or a file with your own prices.")
]
Discounts = Annotated[str, typer.Option(help="File with currency, discounts and commitments.")]
PriceRegion = Annotated[str, typer.Option(help="Use the prices of this region for all nodes.")]
TokenFile = Annotated[Path | None, typer.Option(help="File with the bearer token for Prometheus and agents.")]
CaFile = Annotated[Path | None, typer.Option(help="PEM file with the certificates of the CAs of both.")]


class RecommendationFormat(enum.StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"
    PATCH = "patch"
    KUBECTL = "kubectl"
    HELM = "helm"
    ANNOTATE = "annotate"


_PATCHES = (RecommendationFormat.PATCH, RecommendationFormat.KUBECTL, RecommendationFormat.HELM)


def recommend(
    file: Files = None,
    prometheus: PrometheusUrl = "",
    agent: AgentUrls = None,
    agents_namespace: AgentsNamespace = names.INSTALL_NAMESPACE,
    history_days: HistoryDays = 8.0,
    until: Until = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", "-n", help="Only workloads of this namespace. Repeatable.")
    ] = None,
    workload: Annotated[str, typer.Option(metavar="[[NAMESPACE/]KIND/]NAME", help="Only this workload.")] = "",
    estimator: Annotated[
        str, typer.Option(help="headroom, or vpa for the estimators of the Vertical Pod Autoscaler.")
    ] = "headroom",
    limits: Annotated[
        str,
        typer.Option(
            help=(
                "keep: only raise a memory limit that is too low; ratio: keep the ratio of limit to request; "
                "request: memory's limit is its request, cpu has none."
            )
        ),
    ] = "keep",
    cpu_margin: Annotated[float, typer.Option(min=0, max=1000, help="Margin on the 95th percentile, in percent.")] = 15,
    memory_margin: Annotated[float, typer.Option(min=0, max=1000, help="Margin on the peak, in percent.")] = 15,
    allow_hpa: Annotated[
        bool, typer.Option("--allow-hpa", help="Also recommend resources that a HorizontalPodAutoscaler scales by.")
    ] = False,
    prices: Prices = "auto",
    discounts: Discounts = "",
    price_region: PriceRegion = "",
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    top: Annotated[int, typer.Option(min=1, help="Number of rows, the largest savings first.")] = 20,
    output: Annotated[
        RecommendationFormat, typer.Option("--output", "-o", help="Output format.")
    ] = RecommendationFormat.TABLE,
) -> int:
    """Recommend requests and limits per container, from what each used. Nothing is applied."""
    import sys

    from deploy import garbage, rendering
    from deploy.backtest.server import Access
    from deploy.prices import book
    from deploy.savings import cluster, patches, recommend_table, settings
    from deploy.savings import recommend as core

    garbage.collect_nothing()
    rules = settings.rules(estimator, limits, cpu_margin, memory_margin, minds_hpa=not allow_hpa)
    access = Access(token_file, ca_file)
    where = cluster.WhereToLook(
        file or (), kubeconfig, context, prometheus, agent or (), history_days, access, agents_namespace
    )
    opened = book.open_book(prices, discounts, price_region)
    found = cluster.look(where, with_history=estimator == "vpa", until=settings.instant(until))
    answer, made = core.answer(found, rules, opened, only=core.ContainerChoice(namespace or (), workload))
    match output:
        case RecommendationFormat.TABLE | RecommendationFormat.WIDE:
            text = recommend_table.render(answer, top=top, details=output is RecommendationFormat.WIDE)
        case RecommendationFormat.CSV:
            text = recommend_table.table_csv(answer)
        case RecommendationFormat.NAME:
            text = recommend_table.changed_names(answer)
        case RecommendationFormat.JSON | RecommendationFormat.YAML:
            text = rendering.structured(answer, output.value)
        case RecommendationFormat.PATCH:
            text = patches.kustomization(made)
        case RecommendationFormat.KUBECTL:
            text = patches.kubectl_lines(made)
        case RecommendationFormat.HELM:
            text = patches.helm_values(made)
        case RecommendationFormat.ANNOTATE:
            text = patches.annotations(made)
    print(text, flush=True)
    if output not in (RecommendationFormat.TABLE, RecommendationFormat.WIDE):
        notes = list(answer.notes)
        if output in _PATCHES and (left := patches.list_unpatched(made)):
            notes.append(f"no patch for {', '.join(map(str, left[:3]))}: their pods have no known template")
        for note in notes:
            print(f"headroom recommend: {note}", file=sys.stderr)
    return 0


class SavingsFormat(enum.StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    CSV = "csv"


def savings(
    file: Files = None,
    prometheus: PrometheusUrl = "",
    agent: AgentUrls = None,
    agents_namespace: AgentsNamespace = names.INSTALL_NAMESPACE,
    history_days: HistoryDays = 8.0,
    until: Until = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
    target: Annotated[
        float, typer.Option(min=0.01, max=50, help="Target for broken promises of what is lent, in percent.")
    ] = 1.0,
    limits: Annotated[str, typer.Option(help="As for `recommend`: keep, ratio or request.")] = "keep",
    estimator: Annotated[str, typer.Option(help="As for `recommend`: headroom or vpa.")] = "headroom",
    allow_hpa: Annotated[
        bool, typer.Option("--allow-hpa", help="Also right-size resources that a HorizontalPodAutoscaler scales by.")
    ] = False,
    group_label: Annotated[
        str, typer.Option(help="Label whose value is a node's group. Empty: the labels of clouds and installers.")
    ] = "",
    prices: Prices = "auto",
    discounts: Discounts = "",
    price_region: PriceRegion = "",
    token_file: TokenFile = None,
    ca_file: CaFile = None,
    top: Annotated[int, typer.Option(min=1, help="Number of rows of each table, the largest savings first.")] = 10,
    fail_above: Annotated[
        float | None, typer.Option(min=0, help="Exit with status 1 if more than this could be saved a month.")
    ] = None,
    output: Annotated[SavingsFormat, typer.Option("--output", "-o", help="Output format.")] = SavingsFormat.TABLE,
) -> int:
    """Show what a cluster costs, where the money goes, and what it could save, with and without Headroom."""
    import sys

    from deploy import garbage, rendering
    from deploy.backtest.server import Access
    from deploy.prices import book
    from deploy.savings import cluster, lendable, lending_record, savings_table, settings
    from deploy.savings import savings as core

    garbage.collect_nothing()
    rules = settings.rules(estimator, limits, 15, 15, minds_hpa=not allow_hpa)
    access = Access(token_file, ca_file)
    where = cluster.WhereToLook(
        file or (), kubeconfig, context, prometheus, agent or (), history_days, access, agents_namespace
    )
    question = core.SavingsQuestion(rules, book.open_book(prices, discounts, price_region), group_label)
    found = cluster.look(where, with_history=estimator == "vpa", until=settings.instant(until))
    predicted = lendable.ask(prometheus, access, found.now, history_days, target) if prometheus else None
    record = lending_record.ask(prometheus, access, found.now, history_days) if prometheus else None
    answer = core.answer(found, question, predicted, record)
    match output:
        case SavingsFormat.TABLE | SavingsFormat.WIDE:
            text = savings_table.render(answer, top=top, whole=output is SavingsFormat.WIDE)
        case SavingsFormat.CSV:
            text = savings_table.table_csv(answer)
        case SavingsFormat.NAME:
            text = savings_table.freed_names(answer)
        case _:
            text = rendering.structured(answer, output.value)
    print(text, flush=True)
    if output not in (SavingsFormat.TABLE, SavingsFormat.WIDE):
        for note in filter(None, (answer.bill.prices_remedy, *answer.notes)):
            print(f"headroom savings: {note}", file=sys.stderr)
    if fail_above is None:
        return 0
    if answer.with_headroom is None:
        print(
            "headroom savings: --fail-above has nothing to compare: what could be saved is not known", file=sys.stderr
        )
        return 2
    return 1 if answer.with_headroom > fail_above else 0
