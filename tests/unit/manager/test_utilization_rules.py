"""Options of groups that scale by utilisation: what is refused, in which words, and what absent ones come to."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from manager.autoscaler.cloudprovider.aws.fleet import AwsOptions
from manager.autoscaler.utilization import node_groups, rules
from manager.autoscaler.utilization.node_groups import Compat, NodeGroup
from manager.autoscaler.utilization.rules import SCALE_UP_FAILURES
from shared.errors import InvalidInput
from tests.unit.manager.utilized import VALID, group, rules_of

UNPARSED = "{} failed to parse into a time.Duration. check your formatting."


@pytest.mark.parametrize("compat", list(Compat))
def test_an_empty_group_has_all_sixteen_problems_in_order(compat: Compat) -> None:
    assert node_groups.problems(NodeGroup(compat=compat)) == (
        "name cannot be empty",
        "label_key cannot be empty",
        "label_value cannot be empty",
        "cloud_provider_group_name cannot be empty",
        "taint_upper_capacity_threshold_percent must be larger than 0",
        "taint_lower_capacity_threshold_percent must be larger than 0",
        "scale_up_threshold_percent must be larger than 0",
        "taint_lower_capacity_threshold_percent must be less than taint_upper_capacity_threshold_percent",
        "taint_upper_capacity_threshold_percent must be less than scale_up_threshold_percent",
        "soft_delete_grace_period must not be empty",
        "hard_delete_grace_period must not be empty",
        UNPARSED.format("soft_delete_grace_period"),
        UNPARSED.format("hard_delete_grace_period"),
        "soft_delete_grace_period must be less than hard_delete_grace_period",
        "scale_up_cool_down_period must not be empty",
        UNPARSED.format("scale_up_cool_down_period"),
    )


@pytest.mark.parametrize(
    ("options", "escalators", "ours"),
    [
        ({}, (), ()),
        ({"min_nodes": 5, "max_nodes": 5}, ("min_nodes must be less than max_nodes",), ()),
        (
            {"min_nodes": 6, "max_nodes": 5},
            ("min_nodes must be less than max_nodes",),
            ("min_nodes must be less than max_nodes",),
        ),
        ({"slow_node_removal_rate": -1}, (), ("slow_node_removal_rate must be not less than 0",)),
        (
            {"slow_node_removal_rate": -2, "fast_node_removal_rate": -1},
            (),
            ("slow_node_removal_rate must be not less than 0", "fast_node_removal_rate must be not less than 0"),
        ),
        (
            {"scale_up_cool_down_period": "soon"},
            (UNPARSED.format("scale_up_cool_down_period"),),
            (UNPARSED.format("scale_up_cool_down_period"),),
        ),
        (
            {"aws": {"fleet_instance_ready_timeout": "bogus"}},
            (),
            (UNPARSED.format("aws.fleet_instance_ready_timeout"),),
        ),
        (
            {"untaint_grace_period": "-1m", "scale_down_cool_down_period": "x"},
            (UNPARSED.format("scale_down_cool_down_period"), UNPARSED.format("untaint_grace_period")),
            (UNPARSED.format("scale_down_cool_down_period"), UNPARSED.format("untaint_grace_period")),
        ),
        (
            {
                "unhealthy_node_grace_period": "0",
                "health_check_newest_nodes_percent": 101,
                "max_unhealthy_nodes_percent": 100,
            },
            (
                UNPARSED.format("unhealthy_node_grace_period"),
                "health_check_newest_nodes_percent must be less than or equal to 100",
                "max_unhealthy_nodes_percent must be less than 100",
            ),
            (
                UNPARSED.format("unhealthy_node_grace_period"),
                "health_check_newest_nodes_percent must be less than or equal to 100",
                "max_unhealthy_nodes_percent must be less than 100",
            ),
        ),
    ],
)
def test_what_escalator_refuses_and_what_we_do(
    options: dict[str, Any], escalators: tuple[str, ...], ours: tuple[str, ...]
) -> None:
    assert node_groups.problems(group("escalator", **options)) == escalators
    assert node_groups.problems(group(**options)) == ours


def test_a_group_that_lacks_something_is_refused_with_all_of_it() -> None:
    assert rules.check_rules(group(), source="groups.yaml").soft_seconds == 60
    lacking = group(taint_upper_capacity_threshold_percent=5, scale_up_cool_down_period="")
    with pytest.raises(InvalidInput, match=r"groups.yaml: .*upper.*; scale_up_cool_down_period must not be empty"):
        rules.check_rules(lacking, source="groups.yaml")


def test_absent_options_are_escalators_own_under_compat_escalator_and_safe_without() -> None:
    old, new = rules_of("escalator"), rules_of()
    assert (old.breaker_failures, old.scale_down_cool_down_seconds, old.untaint_grace_seconds) == (0, 0, 0)
    assert new.breaker_failures == SCALE_UP_FAILURES
    assert (new.scale_down_cool_down_seconds, new.untaint_grace_seconds) == (120, 120)
    chosen: dict[str, Any] = {
        "scale_up_failure_threshold": 5,
        "scale_down_cool_down_period": "30s",
        "untaint_grace_period": "0",
    }
    for known in (rules_of("escalator", **chosen), rules_of(**chosen)):
        assert (known.breaker_failures, known.scale_down_cool_down_seconds) == (5, 30)
        assert known.untaint_grace_seconds == 0


def test_a_group_is_dry_by_its_own_word_by_its_mode_or_by_everybodys() -> None:
    assert not rules_of().dry
    assert rules.scan_rules(group(), dry=True).dry
    words: list[dict[str, Any]] = [{"dry_mode": True}, {"mode": "recommend"}, {"mode": "observe"}]
    assert all(rules_of(**each).dry for each in words)


def test_a_file_may_have_numbers_for_any_text_and_the_options_of_newer_escalators(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "groups.yaml"
    more = {
        "aws": {"launch_template_id": "lt-1", "launch_template_version": 3},
        "exclude_unavailable_node_pods": True,
        "scale_down_cool_down_period": "5m",
        "untaint_grace_period": "5m",
        "scale_up_failure_threshold": 3,
    }
    file.write_text(yaml.safe_dump({"node_groups": [{**VALID, **more}]}))
    (found,) = node_groups.load(file)
    assert found.own_options == {"aws": AwsOptions(launch_template_id="lt-1", launch_template_version="3")}
    assert node_groups.problems(found) == ()
    assert caplog.text == ""


@pytest.mark.parametrize("without", ["", "~", "null"])
def test_what_has_no_value_in_a_file_is_as_if_it_were_not_there(without: str) -> None:
    empty = ("taint_effect", "max_node_age", "dry_mode", "health_check_newest_nodes_percent", "predicted_peaks")
    lines = [f"  {key}: {value}" for key, value in {**VALID, **dict.fromkeys(empty, without)}.items()]
    plain = node_groups.decode(yaml.safe_dump({"node_groups": [VALID]}), "file")
    for aws in ("", f" {without}", " {lifecycle: , launch_template_id: ~, instance_type_overrides: null}"):
        text = "\n".join(["node_groups:", "-", *lines, f"  aws:{aws}"])
        assert node_groups.decode(text, "file") == plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("label_value: 2024-01-01", "2024-01-01"),
        ("label_value: 2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z"),
        ("label_value: 1.0", "1"),
        ("label_value: 1.5", "1.5"),
        ("label_value: on", "true"),
        ("Label_Value: x", "x"),
        ("LABEL_VALUE: y\n  label_value: x", "x"),
    ],
)
def test_a_text_of_a_file_is_read_as_escalator_reads_it(text: str, expected: str) -> None:
    (found,) = node_groups.decode(f"NODE_GROUPS:\n- name: a\n  {text}\n", "file")
    assert found.label_value == expected


def test_a_file_may_be_json_with_tabs_and_numbers_may_have_a_point_and_nothing_behind_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    document = {"Node_Groups": [{**VALID, "Max_Nodes": 30.0, "AWS": {"Lifecycle": "spot"}}]}
    del document["Node_Groups"][0]["max_nodes"]
    (found,) = node_groups.decode(json.dumps(document, indent="\t"), "file")
    assert (found.max_nodes, found.own_options, caplog.text) == (30, {"aws": AwsOptions(lifecycle="spot")}, "")
    (found,) = node_groups.decode("{node_groups: [{name: a}]}", "file")  # YAML all the same
    assert found.name == "a"
    for wrong in ({"max_nodes": 30.5}, {"aws": {"instance_type_overrides": [1]}}):
        with pytest.raises(InvalidInput):
            node_groups.decode(json.dumps({"node_groups": [wrong]}), "file")
