"""Which API server the suites run on, on how many workers, and in which order."""

import gc
import os
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from tests.node.layout import DEFAULT, Kind
from tests.simulation import reached
from tests.support import budgets
from tests.support.apiserver import EMBEDDED, NODE, REAL
from tests.support.closing import Closing

# Tests wait for processes and sockets more than they compute; a whole control plane for each worker computes by itself.
WORKERS_PER_CPU = {EMBEDDED: 2.5, REAL: 1.5, NODE: 1}

IN_CI = bool(os.environ.get("CI"))

# Here tests compute; elsewhere they wait.
UNIT = "tests/unit"

# Each of its tests is one process that computes.
SIMULATION = "tests/simulation/test_simulation.py"

# What `make test-apiserver` runs.
ON_REAL = ("tests/integration", "tests/e2e", "tests/chart", "tests/parity")

# Files whose tests ask the one cluster that a fixture of theirs starts, in this order.
ONE_CLUSTER = (
    tuple(f"tests/e2e/test_{name}.py" for name in ("journey", "admission", "scheduling", "kept_directory")),
    # Of clusters with real nodes there are two, side by side. After outages, schedulers and kubelets wait for a while
    # before they ask again.
    tuple(f"tests/node/test_{name}.py" for name in ("counters", "installation", "isolation", "shortfall", "outages")),
    tuple(
        f"tests/node/test_{name}.py"
        for name in (
            "leaves_nothing",
            "lifecycle",
            "lending",
            "second_scheduler",
            "second_node",
            "uninstall",
            "journey",
        )
    ),
)

# How long one example takes is a matter of the machine's load, and no property of the code.
# The same examples every time, so that a failure comes from a change; `--hypothesis-profile search` draws others.
ANY_LOAD = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("search", ANY_LOAD)
settings.register_profile("quick", ANY_LOAD, derandomize=True, max_examples=10)
settings.register_profile("ci", ANY_LOAD, derandomize=True, max_examples=40)
settings.load_profile("ci" if IN_CI else "quick")

# On which kind of cluster a test with the mark does not run: it says why, and is no skipped test there.
OTHER_TIERS = {
    EMBEDDED: {"real_only", "node_only"},
    REAL: {"embedded_only", "node_only"},
    NODE: {"embedded_only"},
}
EMBEDDED_PROVES = ("embedded_only", "own_decision")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what the simulations, on new seeds each time, did not reach: that is chance, and fails nothing."""
    reports = [each for of in terminalreporter.stats.values() for each in of if isinstance(each, pytest.TestReport)]
    properties = [named for each in reports for named in each.user_properties]
    found = [frozenset(value) for name, value in properties if name == reached.PROPERTY and isinstance(value, list)]
    if found:
        terminalreporter.section(f"reached by {len(found)} simulations")
        for line in reached.report(found):
            terminalreporter.line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cluster",
        choices=(EMBEDDED, REAL, NODE),
        default=EMBEDDED,
        help="the embedded API server; a real control plane from KUBEBUILDER_ASSETS or PATH; one with a real node",
    )
    parser.addoption(
        "--node",
        choices=tuple(Kind),
        default=DEFAULT,
        help="of --cluster node, what its nodes are made of",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="runs what is marked `thorough`, and on a real API server what is marked `own_decision`",
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cluster") == REAL:
        # A control plane that lives for minutes spends a tenth of its CPU time on collecting garbage.
        os.environ.setdefault("GOGC", "400")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Closing(config))


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """None for a single file, which this process runs at once."""
    paths = [Path(argument.split("::")[0]) for argument in config.args]
    files = sum(len(list(path.rglob("test_*.py"))) if path.is_dir() else 1 for path in paths)
    workers = int(WORKERS_PER_CPU[config.getoption("--cluster")] * len(os.sched_getaffinity(0)))
    return 0 if files < 2 else min(files, workers)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling:
    """Each file goes to one worker, those that share a cluster to the same one, and each simulated cluster to any."""
    scheduler = LoadFileScheduling(config, log)
    scheduler._split_scope = _scope
    return scheduler


def _scope(nodeid: str) -> str:
    file = nodeid.split("::")[0]
    if file == SIMULATION:
        return nodeid
    return next((files[0] for files in ONE_CLUSTER if file in files), file)


@pytest.fixture(scope="session")
def cluster_kind(request: pytest.FixtureRequest) -> str:
    """The API server that this run is on."""
    return str(request.config.getoption("--cluster"))


@pytest.fixture
def no_collector() -> Iterator[None]:
    """While a parser goes as deep as Python lets it, the finalizers of others' garbage, run there, would fail."""
    gc.disable()
    yield
    gc.enable()


def _runs(item: pytest.Item, kind: str) -> bool:
    """Whether this run has the test. What is thorough, CI runs once: on a real API server if that has a part in it."""
    if any(map(item.get_closest_marker, OTHER_TIERS[kind])):
        return False
    if item.config.getoption("--thorough"):
        return True
    if kind == REAL:
        return not item.get_closest_marker("own_decision")
    on_real = item.nodeid.startswith(ON_REAL) and not any(map(item.get_closest_marker, EMBEDDED_PROVES))
    return not item.get_closest_marker("thorough") or (IN_CI and not on_real)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kind = str(config.getoption("--cluster"))
    chosen = [item for item in items if _runs(item, kind)]
    config.hook.pytest_deselected(items=list(set(items) - set(chosen)))
    items[:] = chosen
    if kind == NODE:
        places = {file: place for place, file in enumerate(file for files in ONE_CLUSTER for file in files)}
        items.sort(key=lambda item: places.get(item.nodeid.split("::")[0], len(places)))
    elif hasattr(config, "workerinput") and not config.pluginmanager.hasplugin("randomly"):
        order = _order({item.nodeid.split("::")[0] for item in items}, budgets.read(kind))
        items.sort(key=lambda item: order[item.nodeid.split("::")[0]])


def _order(files: Iterable[str], seconds: budgets.Seconds) -> dict[str, float]:
    """By file, what share of its kind's time comes before it: of all at once, some wait while others compute, and what
    takes long begins first, since otherwise one worker is busy with it when all others have finished.
    """
    unit: list[str] = []
    others: list[str] = []
    for file in sorted(files, key=lambda file: (-seconds.get(file, 0.0), file)):
        (unit if file.startswith(UNIT) else others).append(file)
    order = {}
    for kind in (unit, others):
        whole = sum(seconds.get(file, 0.0) for file in kind) or 1.0
        before = 0.0
        for file in kind:
            order[file] = before / whole
            before += seconds.get(file, 0.0)
    return order


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: looking again and again for garbage in it costs a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
