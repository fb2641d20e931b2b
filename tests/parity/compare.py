"""Recordings, and the differences between two transcripts."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from deploy.local.control_plane import binary
from tests.parity.behaviours import Area
from tests.parity.calls import Calls, Exchange
from tests.parity.normalise import normalised
from tests.support.apiserver import ApiServer

RECORDED = Path(__file__).parent / "recorded"
Json = Any  # what JSON decodes to
Transcripts = Mapping[str, Sequence[Exchange]]
_KUBECTL = RECORDED / "kubectl-version"
ABSENT, STUCK = "(absent)", "cannot go on"


@dataclass(frozen=True)
class Difference:
    """A value that is not the same: where (`1.body.reason` is in the second call's answer), and both values."""

    path: str
    real: Json
    embedded: Json

    def __str__(self) -> str:
        return f"`{self.path}`: real {_short(self.real)}, embedded {_short(self.embedded)}"


def _short(value: Json) -> str:
    text = value if value is ABSENT else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= 300 else text[:300] + " ..."


def _says_nothing(value: Json) -> bool:
    """Whether a field means the same as an absent one to every client: Go writes some of these, and omits others."""
    return value in (ABSENT, None, {}, [])


def differences(real: Json, embedded: Json, path: str = "") -> Iterator[Difference]:
    """Where two JSON values differ, as deep as they are of one shape."""
    if isinstance(real, dict) and isinstance(embedded, dict):
        if real.get("code", 0) != embedded.get("code", 0) and "call" in real:
            yield Difference(path, said(real), said(embedded))
            return
        for key in sorted(real.keys() | embedded.keys()):
            where = f"{path}.{key}".lstrip(".")
            one, other = real.get(key, ABSENT), embedded.get(key, ABSENT)
            if not (_says_nothing(one) and _says_nothing(other)):
                yield from differences(one, other, where)
    elif isinstance(real, list) and isinstance(embedded, list) and len(real) == len(embedded):
        for index, (one, other) in enumerate(zip(real, embedded, strict=True)):
            yield from differences(one, other, f"{path}.{index}".lstrip("."))
    elif type(real) is not type(embedded) or real != embedded:
        yield Difference(path, real, embedded)


def found(recorded: Transcripts, embedded: Transcripts) -> Mapping[str, Sequence[Difference]]:
    """The differences of each behaviour that was made."""
    return {sentence: list(differences(recorded[sentence], made)) for sentence, made in embedded.items()}


def answers(server: ApiServer, area: Area) -> Transcripts:
    """What a server answers to an area's behaviours, as it is compared."""
    return {sentence: answer(server, area, sentence) for sentence in area.behaviours}


def answer(server: ApiServer, area: Area, sentence: str) -> list[Exchange]:
    """What a server answers to one behaviour's calls; where it cannot go on, the last one says why."""
    calls = Calls(server, binary("kubectl") if area.kubectl else None)
    with calls:
        try:
            area.behaviours[sentence](calls)
        except (AssertionError, KeyError, StopIteration, httpx.HTTPError) as error:
            calls.exchanges.append({"call": STUCK, "code": 0, "body": f"{type(error).__name__}: {error}"})
    return normalised(calls.exchanges)


def said(exchange: Exchange) -> str:
    """An answer in a few words: `409 AlreadyExists`."""
    body, code = exchange.get("body"), exchange["code"]
    if exchange["call"].startswith("kubectl"):
        return "kubectl succeeds" if code == 0 else "kubectl fails"
    if isinstance(body, list):
        return f"{code} " + (
            "-".join(str(event.get("type") or event.get("reason")) for event in body) or "and no event"
        )
    reason = body.get("reason", "") if isinstance(body, dict) and body.get("kind") == "Status" else ""
    return f"{code} {reason}".strip()


def kubectl_version(kubectl: Path) -> str:
    """The minor release of a kubectl, like 1.36."""
    asked = [str(kubectl), "version", "--client", "-o", "json"]
    told = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)["clientVersion"]
    return ".".join(told["gitVersion"].lstrip("v").split(".")[:2])


def recorded_kubectl() -> str:
    """The release whose output was recorded."""
    return _KUBECTL.read_text(encoding="utf-8").strip()


def load(area: str) -> Transcripts:
    """What the real server answered to an area's behaviours."""
    found: Transcripts = json.loads((RECORDED / f"{area}.json").read_text(encoding="utf-8"))
    return found


def save(area: str, transcripts: Transcripts) -> None:
    """Writes a recording, one line a call. AssertionError for a behaviour that could not go on."""
    behaviours = []
    for sentence, exchanges in transcripts.items():
        if exchanges[-1]["call"] == STUCK:
            raise AssertionError(f"{area}: {sentence}: {exchanges[-1]['body']}")
        lines = ",\n".join("  " + json.dumps(item, ensure_ascii=False, sort_keys=True) for item in exchanges)
        behaviours.append(f" {json.dumps(sentence, ensure_ascii=False)}: [\n{lines}\n ]")
    RECORDED.mkdir(exist_ok=True)
    if any(exchange["call"].startswith("kubectl") for exchange in next(iter(transcripts.values()))):
        _KUBECTL.write_text(kubectl_version(binary("kubectl")) + "\n", encoding="utf-8")
    (RECORDED / f"{area}.json").write_text("{\n" + ",\n".join(behaviours) + "\n}\n", encoding="utf-8")
