"""Every behaviour on the embedded API server, and where asked for on a real one, beside what was recorded."""

import contextlib
from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.parity import compare, report
from tests.parity.accepted import ACCEPTED, unaccepted
from tests.parity.areas import AREAS
from tests.parity.behaviours import Area
from tests.parity.compare import Difference
from tests.support.apiserver import EMBEDDED, REAL, ApiServer, started
from tests.support.programs import program

CASES = [(area, sentence) for area in AREAS for sentence in area.behaviours]
Compared = Callable[[ApiServer, Area, str], Sequence[Difference]]

asks_the_embedded_one = pytest.mark.embedded_only("it asks the embedded one")


def _named(value: object) -> str:
    return value.name if isinstance(value, Area) else str(value)


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with contextlib.closing(started(EMBEDDED, tmp_path_factory.mktemp(EMBEDDED))) as server:
        yield server


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with contextlib.closing(started(REAL, tmp_path_factory.mktemp(REAL))) as server:
        yield server


@pytest.fixture(scope="module")
def compared() -> Compared:
    """The differences of a behaviour on a server; each is made once."""
    known: dict[tuple[int, str, str], Sequence[Difference]] = {}

    def differences(server: ApiServer, area: Area, sentence: str) -> Sequence[Difference]:
        key = (id(server), area.name, sentence)
        if key not in known:
            recorded = compare.load(area.name)[sentence]
            known[key] = list(compare.differences(recorded, compare.answer(server, area, sentence)))
        return known[key]

    return differences


def needs_kubectl(area: Area) -> None:
    """What kubectl prints depends on its version, which is the recorded one where both come from the same tools."""
    if not area.kubectl:
        return
    version = compare.kubectl_version(program("kubectl"))
    recorded = compare.recorded_kubectl()
    if version != recorded:
        pytest.skip(f"kubectl is {version}, and what {recorded} prints was recorded")


@pytest.mark.thorough
@asks_the_embedded_one
@pytest.mark.parametrize(("area", "sentence"), CASES, ids=_named)
def test_the_embedded_server_answers_as_a_real_one_did(
    embedded: ApiServer, compared: Compared, area: Area, sentence: str
) -> None:
    needs_kubectl(area)
    found = list(unaccepted(area.name, sentence, compared(embedded, area, sentence)))
    assert not found, "\n".join(map(str, found))


@pytest.mark.real_only("it asks a real one")
@pytest.mark.parametrize(("area", "sentence"), CASES, ids=_named)
def test_what_was_recorded_is_what_a_real_server_answers(
    real: ApiServer, compared: Compared, area: Area, sentence: str
) -> None:
    needs_kubectl(area)
    found = compared(real, area, sentence)
    assert not found, "\n".join(map(str, found))


@pytest.mark.thorough
@asks_the_embedded_one
@pytest.mark.parametrize("area", AREAS, ids=_named)
def test_the_list_says_what_is_so(embedded: ApiServer, compared: Compared, area: Area) -> None:
    needs_kubectl(area)
    found = {sentence: compared(embedded, area, sentence) for sentence in area.behaviours}
    written = "\n".join([f"## {area.title}", "", *report.section(area, compare.load(area.name), found)])
    assert written in report.PAGE.read_text(encoding="utf-8"), "python -m tests.parity report writes it anew"


def test_what_is_accepted_is_known() -> None:
    known = {(area.name, sentence) for area, sentence in CASES}
    named = {(entry.area, sentence) for entry in ACCEPTED for sentence in entry.behaviours}
    assert named <= known
    page = report.PAGE.read_text(encoding="utf-8")
    assert all(entry.reason in page for entry in ACCEPTED)


@pytest.mark.parametrize("area", AREAS, ids=_named)
def test_nothing_is_recorded_that_is_no_behaviour(area: Area) -> None:
    assert list(compare.load(area.name)) == list(area.behaviours)
