"""The file of a local cluster's cloud: what is wrong with it is said where its user looks."""

from pathlib import Path

from deploy.local.notices import WatchedCloudFile

GOOD = "groups: [{name: web, machine_type: n1-standard-4}]"


def test_a_change_that_means_nothing_is_told_once_and_so_is_its_end(tmp_path: Path) -> None:
    path = tmp_path / "cloud.yaml"
    path.write_text(GOOD)
    file = WatchedCloudFile(path)
    assert file.new() == []
    path.write_text(GOOD.replace("n1-standard-4", "[]"))
    (told,) = file.new()
    assert told.startswith("The cloud stays as it was: ")
    assert f"{path}: groups[0].machine_type: []: " in told
    assert file.new() == []
    path.unlink()
    (gone,) = file.new()
    assert "no such file" in gone
    path.write_text("{[")
    (torn,) = file.new()
    assert "\n" not in torn
    path.write_text(GOOD)
    assert file.new() == ["The cloud is what its file says again"]
    assert file.new() == []
