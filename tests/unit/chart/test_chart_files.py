"""The chart's files follow the code."""

from deploy import chart_files
from deploy.chart_files import FILES, ROOT


def test_the_committed_files_are_what_the_code_generates_now() -> None:
    generated = chart_files.generated()
    folders = {path.parent for path in generated}
    committed = {
        path.relative_to(ROOT): path.read_text("utf-8") for folder in folders for path in (ROOT / folder).glob("*.yaml")
    }
    assert folders >= {FILES / "cloudproviders"}
    assert committed == generated, "run: python -m deploy.chart_files"
