"""The command line of `headroom backtest`. It imports the replay only when it runs."""

import enum
import sys
import time
from pathlib import Path
from typing import Annotated

import typer


class OutputFormat(enum.StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"


def backtest(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SOURCE...",
            help="Recorded usage: a CSV (also .gz) or Parquet file, a saved answer of Prometheus to a range query "
            "(.json), the URL of a Prometheus, agent+URL for an agent's, or its state folder.",
        ),
    ] = None,
    from_agent: Annotated[
        str,
        typer.Option(
            metavar="URL|STATE_DIR",
            help="Replay nothing. Print how an agent's own models did, and which one to use.",
        ),
    ] = "",
    limits: Annotated[
        Path | None, typer.Option(help="CSV or Parquet file with requests or limits; the series is the first column.")
    ] = None,
    unit: Annotated[
        str, typer.Option(help="Unit of the values if no name ends with one, for example cpu_millicores or mem_mib.")
    ] = "",
    aggregate: Annotated[
        str,
        typer.Option(
            help="mean or max. For sources with both: which one to use (default: the maximum of files, the mean of "
            "servers). For others: what their values are."
        ),
    ] = "",
    model: Annotated[
        str, typer.Option(help="Predictors to replay, separated by commas. max(a,b) combines two.")
    ] = "peak-mix,n-sigma-v2",
    target: Annotated[str, typer.Option(help="Targets for broken promises in percent, separated by commas.")] = "1",
    horizon: Annotated[str, typer.Option(help="Horizons of the promises in whole hours, separated by commas.")] = "24h",
    resource: Annotated[str, typer.Option(help="cpu, memory, or both, separated by a comma.")] = "cpu,memory",
    policy: Annotated[
        Path | None,
        typer.Option(help="YAML file with a predictPolicy as in a NodeMetric, in place of the agent's defaults."),
    ] = None,
    node_cores: Annotated[
        float | None,
        typer.Option(
            min=0.001, help="Pack pods onto nodes of this size. Default: the recorded nodes, or else 64 cores."
        ),
    ] = None,
    churn: Annotated[str, typer.Option(help="none, recorded, or the mean life of a packed pod, for example 48h.")] = "",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Number of random packings.")] = 1,
    max_nodes: Annotated[int | None, typer.Option(min=1, help="Maximum number of nodes of each packing.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="Number of processes.")] = 1,
    engine: Annotated[
        str, typer.Option(help="dask://HOST:PORT of a Dask scheduler whose workers have Headroom installed.")
    ] = "",
    since: Annotated[str, typer.Option(help="How far back to read a Prometheus.")] = "720h",
    until: Annotated[str, typer.Option(help="End of the history in RFC 3339. Default: now.")] = "",
    step: Annotated[str, typer.Option(help="Interval of the samples, which must divide an hour.")] = "5m",
    token_file: Annotated[
        Path | None, typer.Option(help="File with the bearer token for the source, read for each request.")
    ] = None,
    ca_file: Annotated[Path | None, typer.Option(help="PEM file with the certificates of the trusted CAs.")] = None,
    html: Annotated[Path | None, typer.Option(help="Also write a report with plots to this file.")] = None,
    output: Annotated[OutputFormat, typer.Option("--output", "-o", help="Output format.")] = OutputFormat.TABLE,
    fail_above_target: Annotated[
        bool,
        typer.Option(
            "--fail-above-target",
            help=(
                "Exit with status 1 if more promises are broken than the target allows. Models without a "
                "target are compared with the strictest one."
            ),
        ),
    ] = False,
) -> int:
    """Replay recorded usage to the agent's own predictors: what each would have lent, and how often it was wrong."""
    from deploy.backtest import answers, options, report, running
    from deploy.backtest import from_agent as agents
    from deploy.backtest.server import Access
    from shared.errors import InvalidInput

    if bool(sources) == bool(from_agent):
        problem = "expected sources to replay, or --from-agent"
        raise InvalidInput(source="command line", field="SOURCE", value=",".join(sources or ()), problem=problem)
    if from_agent:
        judged = agents.judged(from_agent, options.targets(target)[0], Access(token_file, ca_file))
        print(agents.render(judged, output.value), flush=True)
        return 0
    asked = options.Options(
        sources=sources or (),
        limits=limits,
        unit=options.unit(unit),
        aggregate=options.aggregate(aggregate),
        models=options.models(model),
        target_percents=options.targets(target),
        horizons_hours=options.horizons(horizon),
        resources=options.resources(resource),
        policy=options.prediction_policy(policy),
        placement=options.placement(churn, node_cores=node_cores, seeds=seeds, max_nodes=max_nodes),
        workers=workers,
        dask=options.engine(engine),
        period=options.period(since, until, step, time.time()),
        access=Access(token_file, ca_file),
    )
    if html is not None:
        report.check(html)
    runs = list(running.runs(asked))
    if html is not None:
        report.write(html, runs, asked.target_percents)
    results = [result for run in runs for result in run.results]
    print(answers.render(results, output.value), flush=True)
    missed = answers.missed(results, asked.target_percents) if fail_above_target else []
    for line in missed:
        print(f"{running.PROGRAM}: {line}", file=sys.stderr)
    return 1 if missed else 0
