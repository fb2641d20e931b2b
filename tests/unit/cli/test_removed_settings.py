"""Settings that were removed: each is refused with a sentence that says what replaces it."""

import re
from pathlib import Path

import msgspec
import pytest

from agent.settings import AgentSettings
from manager.daemon_settings import DaemonSettings
from shared import settings
from shared.errors import InvalidInput

ROOT = Path(__file__).parents[3]
KINDS: tuple[type[msgspec.Struct], ...] = (AgentSettings, DaemonSettings)
REMOVED = [(kind, name, sentence) for kind in KINDS for name, sentence in settings.removed(kind).items()]


def flag(name: str) -> str:
    return "--" + name.removesuffix("_seconds").replace("_", "-")


@pytest.mark.parametrize(("kind", "name", "sentence"), REMOVED, ids=[name for _, name, _ in REMOVED])
def test_a_removed_flag_is_refused_with_what_replaces_it(kind: type[msgspec.Struct], name: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        settings.load(kind, program="test", description="", argv=[f"{flag(name)}=1"], environment={})
    assert str(refused.value).startswith(flag(name))
    assert f"this setting was removed. {sentence}" in str(refused.value)


@pytest.mark.parametrize(("kind", "name", "sentence"), REMOVED, ids=[name for _, name, _ in REMOVED])
def test_what_a_sentence_names_is_there(kind: type[msgspec.Struct], name: str, sentence: str) -> None:
    known = {flag(field.name) for field in settings.fields(kind)}
    assert flag(name) not in known
    assert set(re.findall(r"--[a-z-]+[a-z]", sentence)) <= known
    assert all((ROOT / page).is_file() for page in re.findall(r"docs/[\w/.-]+\.md", sentence))
    assert sentence.endswith(".")
