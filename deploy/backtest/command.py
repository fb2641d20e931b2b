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
            help="Replay nothing: print what an agent knows of its own models, and which it should use.",
        ),
    ] = "",
    limits: Annotated[
        Path | None, typer.Option(help="File with what each series requested, or its limit; its name comes first.")
    ] = None,
    unit: Annotated[
        str, typer.Option(help="What numbers count, as cpu_millicores or mem_mib, where no name ends with that.")
    ] = "",
    model: Annotated[
        str, typer.Option(help="Predictors to try, with commas between them; max(a,b) is one.")
    ] = "peak-mix,n-sigma-v2",
    target: Annotated[str, typer.Option(help="Violations to aim at in percent, for models that have a target.")] = "1",
    horizon: Annotated[str, typer.Option(help="How far ahead peaks are promised, in whole hours.")] = "24h",
    resource: Annotated[
        str, typer.Option(help="cpu, memory, or both with a comma; sources of others are left out.")
    ] = "cpu,memory",
    policy: Annotated[
        Path | None, typer.Option(help="A predictPolicy as in a NodeMetric (YAML), in place of the agent's defaults.")
    ] = None,
    node_cores: Annotated[
        float | None,
        typer.Option(min=0.001, help="Pack pods onto nodes of that size (64 where it is not recorded where they ran)."),
    ] = None,
    churn: Annotated[
        str, typer.Option(help="none, recorded (where and when they ran), or the mean life of a packed pod, as 48h.")
    ] = "",
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="How many random packings are replayed together.")] = 1,
    max_nodes: Annotated[int | None, typer.Option(min=1, help="Replay no more nodes of each packing.")] = None,
    workers: Annotated[int, typer.Option(min=1, max=1024, help="Processes that share the nodes between them.")] = 1,
    engine: Annotated[
        str, typer.Option(help="dask://HOST:PORT: a Dask scheduler whose workers have Headroom installed.")
    ] = "",
    since: Annotated[str, typer.Option(help="How far back a Prometheus is asked.")] = "720h",
    until: Annotated[str, typer.Option(help="Until when, in RFC 3339; now unless set.")] = "",
    step: Annotated[str, typer.Option(help="How far apart its samples are to be, a part of an hour.")] = "5m",
    token_file: Annotated[Path | None, typer.Option(help="Bearer token for it, read for each request.")] = None,
    ca_file: Annotated[Path | None, typer.Option(help="Certificates of the CAs it may be signed by, in PEM.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write a report with plots to that file, too.")] = None,
    output: Annotated[OutputFormat, typer.Option("--output", "-o", help="How to print it.")] = OutputFormat.TABLE,
    fail_above_target: Annotated[
        bool,
        typer.Option(
            "--fail-above-target",
            help="Exit with 1 where more promises are broken than the target allows; models without one have to keep "
            "the strictest.",
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
