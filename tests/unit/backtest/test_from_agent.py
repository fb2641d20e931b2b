"""What an agent knows of its own models, read from its state folder and its API, and what is no agent."""

import json
from pathlib import Path

from tests.support import schemas
from tests.support.command_line import Run
from tests.unit.agent.test_truth import Quarters
from tests.unit.backtest.prometheus_server import PrometheusServer


def test_a_state_folder_is_read_as_it_is(tmp_path: Path, backtest: Run) -> None:
    node = Quarters(tmp_path)
    found = node.live(30)
    node.server.save()
    newest = tmp_path / "prediction-000000000009.checkpoint"
    newest.write_bytes(b"torn")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    status, out, _ = backtest("--from-agent", tmp_path, "-o", "json")
    assert status == 0
    document = json.loads(out)
    assert list(schemas.problems(document, schemas.published("from_agent"))) == []
    assert [(one["model"], one["outcomes"]) for one in document["models"]] == [("n-sigma-v2", 7), ("percentile", 7)]
    assert document["models"][1]["cpu_lent_percent"] == round(found.shadows[0].kept.lent_percents[0], 3)
    assert document["recommended"]["sentence"].startswith("Keep n-sigma-v2: n-sigma-v2 has 7 outcomes of the 168")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    status, out, _ = backtest("--from-agent", tmp_path)
    header, first, *_, sentence = out.strip().splitlines()
    assert header.split()[:2] == ["MODEL", "OUTCOMES"]
    assert first.split()[:2] == ["n-sigma-v2", "7"]
    assert sentence == document["recommended"]["sentence"]
    status, out, _ = backtest("--from-agent", tmp_path, "-o", "csv")
    assert out.splitlines()[1].startswith("n-sigma-v2,7,")


def test_what_is_no_agent_is_refused_by_name(tmp_path: Path, server: PrometheusServer, backtest: Run) -> None:
    status, _, err = backtest("--from-agent", tmp_path)
    assert (status, "no checkpoint in it has outcomes" in err) == (2, True)
    status, _, err = backtest("--from-agent", tmp_path, "source.csv")
    assert (status, "expected sources to replay, or --from-agent" in err) == (2, True)
    assert backtest()[0] == 2
    status, _, err = backtest("--from-agent", server.url)
    assert (status, "404" in err) == (1, True)
