"""The last lines of a run: why tests were skipped, which files took longest, and what all of it took."""

import json
import os
import resource
import time
from collections import Counter, defaultdict

import pytest

from tests.support import budgets, programs


class Closing:
    """Counts the seconds of each file while the reports come in, whichever process has run the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._begun = time.monotonic()
        self._cluster_kind = str(config.getoption("cluster"))
        self._cache = getattr(config, "cache", None)
        self._seconds: defaultdict[str, float] = defaultdict(float)  # by file
        self._skips: Counter[str] = Counter()  # by reason

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.split("::")[0]] += report.duration
        if report.skipped and isinstance(report.longrepr, tuple):
            self._skips[report.longrepr[2].removeprefix("Skipped: ")] += 1

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._seconds:
            return
        line = terminalreporter.write_line
        missing = {reason: count for reason, count in self._skips.items() if programs.NOT_INSTALLED in reason}
        for reason, count in sorted(self._skips.items()):
            if reason not in missing:
                line(f"{count:4} skipped: {reason}")
        if len(self._seconds) > 1:
            for said in budgets.lines(self._cluster_kind, self._seconds):
                line(said)
        used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        cpu_seconds = sum(each.ru_utime + each.ru_stime for each in used)
        line(f"{time.monotonic() - self._begun:.0f} s, and {cpu_seconds:.0f} s of CPU time")
        for reason, count in sorted(missing.items()):
            line(f"NOT CHECKED: {count} tests, as {reason}")

    def pytest_sessionfinish(self) -> None:
        if self._cache is not None and self._seconds:
            file = self._cache.mkdir(budgets.MEASURED) / f"{self._cluster_kind}.json"
            known = json.loads(file.read_text()) if file.exists() else {}
            unfinished = file.with_suffix(f".{os.getpid()}")
            unfinished.write_text(json.dumps(known | self._seconds))
            unfinished.rename(file)  # another run beside this one never reads half a file
