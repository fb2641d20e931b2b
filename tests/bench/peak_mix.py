"""How good `peak-mix` is on recorded usage, and how its constants were chosen.

`python -m tests.bench.peak_mix TRACES_DIR` prints the table of docs/explanation/prediction.md. With `--choose` it
chooses each constant anew on August of Bitbrains alone, see `peak_mix_choice`; with `--ideas` it tries terms that the
formula does not have, see `peak_mix_ideas`; with `--parts` it says what each term is worth, see `peak_mix_parts`; with
`--withdrawals` what is taken back, why, and what less of it costs, see `peak_mix_withdrawals`; with `--reproduce` it
holds the other predictors against independent measurements, with `--rules` the rules that were measured, see
`independent`. The traces are not part of the repository."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.bench import independent, peak_mix_choice, peak_mix_ideas, peak_mix_parts, peak_mix_withdrawals
from tests.bench.recorded import COLUMNS, DAY_HOURS, TARGET_PERCENTS, WEEK_HOURS, replayed, scenario, scores


def _table(directory: Path, seeds: int) -> None:
    header = "target | violations | p90 node | severity | savings | oracle's | withdrawn a day | kept 24 h | days 1-7"
    print(f"| | {header} |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for column in COLUMNS:
        of = replayed(*scenario(directory, column, seeds))
        first = DAY_HOURS if column.of_machines else WEEK_HOURS
        for target in TARGET_PERCENTS:
            judged = scores(of, target, slice(first, None))
            early = (
                "" if column.of_machines else f"{scores(of, target, slice(DAY_HOURS, first)).violation_percent:.1f} %"
            )
            print(
                f"| {column.name} | {target:g} % | {judged.violation_percent:.2f} % "
                f"| {judged.violation_percent_p90_node:.1f} % | {judged.severity_percent:.2f} % "
                f"| {judged.savings_percent:.1f} % | {judged.oracle_savings_percent:.1f} % "
                f"| {judged.withdrawn_percent_per_day:.1f} % | {judged.kept_24h_percent:.0f} % | {early} |",
                flush=True,
            )
        print(f"{column.name}: {of.requested.shape[1]} nodes, model {of.model_seconds:.1f} s of CPU", file=sys.stderr)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("traces", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    reports = parser.add_mutually_exclusive_group()
    reports.add_argument("--choose", dest="report", action="store_const", const=peak_mix_choice.report)
    reports.add_argument("--reproduce", dest="report", action="store_const", const=independent.report)
    reports.add_argument("--rules", dest="report", action="store_const", const=independent.report_rules)
    reports.add_argument("--ideas", dest="report", action="store_const", const=peak_mix_ideas.report)
    reports.add_argument("--parts", dest="report", action="store_const", const=peak_mix_parts.report)
    reports.add_argument("--withdrawals", dest="report", action="store_const", const=peak_mix_withdrawals.report)
    parser.set_defaults(report=_table)
    options = parser.parse_args(arguments)
    options.report(options.traces, options.seeds)


if __name__ == "__main__":
    main()
