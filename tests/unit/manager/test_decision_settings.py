"""What the autoscaler's settings come to, and which of them are refused, by flag, file, group and field."""

import subprocess
import sys
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from manager.autoscaler import decision_settings
from manager.autoscaler.cloudprovider.aws.fleet import AwsOptions
from manager.autoscaler.cloudprovider.ownership import SizeBounds
from manager.autoscaler.decision_settings import DecisionSettings, of_same_names
from manager.autoscaler.disruption.rules import DisruptionRules
from manager.autoscaler.estimator.limits import ResourceBounds
from manager.autoscaler.expander import ranking
from manager.autoscaler.pricing.gce import GcePricing
from manager.autoscaler.pricing.model import FirstOffered, Machine, NotOffered, PricingModel, Unpriced
from manager.autoscaler.pricing.price_file import FilePricing
from manager.autoscaler.scale_down.removal_status import GroupRules, ScaleDownRules
from manager.autoscaler.scale_up.candidate_labels import Popularity
from manager.autoscaler.scale_up.options import EstimateRules, ScaleUpSettings
from manager.autoscaler.settings.autoscaler_settings import AutoscalerSettings
from manager.autoscaler.settings.modes import Mode
from manager.autoscaler.settings.scale_down import ActuationOptions, Delays, DrainRules, Parallelism, RemovalRules
from manager.autoscaler.utilization import node_groups
from manager.autoscaler.utilization.node_groups import PredictedPeaks, ScalingPolicy
from manager.daemon_settings import DaemonSettings
from shared import settings as settings_module
from shared.errors import InvalidInput
from shared.quantity import Amounts
from tests.unit.manager import utilized

GIB = 1 << 30


def loaded(**settings: Any) -> DecisionSettings:
    return decision_settings.load(
        settings_module.combine(AutoscalerSettings, {"cloud_provider": "simulated", **settings})
    )


def flags(*argv: str) -> AutoscalerSettings:
    return settings_module.load(DaemonSettings, program="test", description="", argv=argv, environment={}).autoscaler


@pytest.fixture
def groups_file(tmp_path: Path) -> Path:
    return tmp_path / "groups.yaml"


def scaled(name: str, **options: Any) -> dict[str, Any]:
    """A group with what scaling by utilisation needs; its cloud calls it by its name and an s."""
    return {
        **utilized.VALID,
        "min_nodes": 0,
        "max_nodes": 0,
        "name": name,
        "cloud_provider_group_name": f"{name}s",
    } | options


def written(file: Path, *groups: dict[str, Any]) -> Path:
    file.write_text(yaml.safe_dump({"node_groups": list(groups)}))
    return file


def test_flags_have_the_names_people_know() -> None:
    settings = flags(
        *("--cloud-provider", "simulated", "--nodes", "1:10:a", "--nodes", "0:3:b", "--max-cpu", "80"),
        *("--min-memory", "4", "--node-autoprovisioning", "--machine-types", "n1-standard-1,n1-standard-2"),
        *("--gpu-total", "nvidia-tesla-k80:0:4", "--scan-interval", "20s", "--max-node-provision-time", "5m"),
        *("--expander", "priority,price", "--max-nodes-total", "100", "--balance-similar-node-groups"),
        *("--fastpath-binpacking-enabled", "--scale-up-all-or-nothing"),
    )
    found = decision_settings.load(settings)
    assert found.ownership.listed == {"a": SizeBounds(1, 10), "b": SizeBounds(0, 3)}
    assert found.scale_up.bounds == {
        "cpu": ResourceBounds(None, 80),
        "memory": ResourceBounds(4 * GIB, None),
        "nvidia-tesla-k80": ResourceBounds(0, 4),
    }
    assert found.autoprovisioning.machine_types == ("n1-standard-1", "n1-standard-2")
    assert (settings.scan_interval_seconds, found.start.max_node_provision_time_seconds) == (20, 300)
    assert found.scale_up.expanders == ("priority", "price")
    assert found.uses_priorities
    assert found.scale_up.max_nodes_total == 100
    estimates = found.scale_up.estimates
    assert (
        estimates.balance_similar_node_groups,
        estimates.fastpath_binpacking_enabled,
        estimates.scale_up_all_or_nothing,
    ) == (True, True, True)


def test_without_flags_the_cluster_has_no_bounds_and_every_group_of_ours_is_enforced() -> None:
    found = loaded()
    assert found.scale_up.bounds == {}
    assert (found.scale_up.estimates.fastpath_binpacking_enabled, found.scale_up.estimates.scale_up_all_or_nothing) == (
        False,
        False,
    )
    assert found.mode_of("any") is Mode.ENFORCE
    assert found.ownership.prefix == "nodeautoprovisioning"
    assert not found.autoprovisioning.node_autoprovisioning
    assert found.salvo_seconds == 60.0
    assert loaded(salvo_scale_up=False).salvo_seconds is None


def test_a_rule_takes_the_settings_that_its_fields_are_named_after_and_what_is_derived() -> None:
    settings = AutoscalerSettings(scale_down_unneeded_time_seconds=7.0, ignore_daemonsets_utilization=True)
    found = of_same_names(GroupRules, settings, scale_down_utilization_threshold=0.4, zero_or_max_node_scaling=True)
    assert found.scale_down_gpu_utilization_threshold is settings.scale_down_gpu_utilization_threshold
    assert (found.scale_down_unneeded_time_seconds, found.ignore_daemonsets_utilization) == (7.0, True)
    assert (found.scale_down_utilization_threshold, found.zero_or_max_node_scaling) == (0.4, True)


@pytest.mark.parametrize(
    ("kind", "derived"),
    [
        (DecisionSettings, {"prices", "consolidation"}),
        (ScaleUpSettings, set()),
        (EstimateRules, set()),
        (GroupRules, {"scale_down_utilization_threshold", "scale_down_gpu_utilization_threshold"}),
        (ScaleDownRules, set()),
        (DisruptionRules, set()),
    ],
)
def test_a_rule_has_the_types_of_the_settings_that_it_takes(kind: type[Any], derived: set[str]) -> None:
    given, wanted = typing.get_type_hints(AutoscalerSettings), typing.get_type_hints(kind)
    assert {name for name in given.keys() & wanted.keys() if given[name] != wanted[name]} == derived


def test_scale_down_has_cluster_autoscalers_flags_and_defaults() -> None:
    default = loaded()
    assert (default.scale_down_enabled, default.scale_down_peaks) == (True, True)
    assert default.scale_down_simulation_timeout_seconds == 30.0
    assert (default.scale_down, default.actuation) == (ScaleDownRules(), ActuationOptions())
    given = flags(
        *("--scale-down-enabled", "false", "--scale-down-peaks", "false", "--scale-down-unready-enabled", "false"),
        *("--scale-down-unneeded-time", "5m", "--scale-down-unready-time", "6m"),
        *("--scale-down-utilization-threshold", "0.4", "--scale-down-gpu-utilization-threshold", "0.3"),
        *("--ignore-daemonsets-utilization", "true"),
        *("--scale-down-delay-after-add", "1m", "--scale-down-delay-after-delete", "2m"),
        *("--scale-down-delay-after-failure", "4m", "--scale-down-delay-type-local", "true"),
        *("--max-scale-down-parallelism", "7", "--max-drain-parallelism", "3", "--min-replica-count", "2"),
        *("--skip-nodes-with-system-pods", "false", "--skip-nodes-with-local-storage", "false"),
        *("--skip-nodes-with-custom-controller-pods", "false"),
        *("--scale-down-peak-margin-percent", "20", "--max-bulk-soft-taint-count", "4"),
        *("--min-cpu", "8", "--max-cpu", "100"),
        *("--node-delete-delay-after-taint", "8s", "--cordon-node-before-terminating", "false"),
        *("--max-graceful-termination-sec", "60", "--max-pod-eviction-time", "3m"),
        *("--daemonset-eviction-for-occupied-nodes", "false"),
    )
    chosen = decision_settings.load(given)
    assert (chosen.scale_down_enabled, chosen.scale_down_peaks) == (False, False)
    assert chosen.scale_down == ScaleDownRules(
        GroupRules(0.4, 0.3, 300.0, 360.0, ignore_daemonsets_utilization=True),
        drain=DrainRules(
            2,
            skip_nodes_with_system_pods=False,
            skip_nodes_with_local_storage=False,
            skip_nodes_with_custom_controller_pods=False,
        ),
        delays=Delays(60.0, 120.0, 240.0, scale_down_delay_type_local=True),
        parallelism=Parallelism(7, 3),
        bounds={"cpu": ResourceBounds(8, 100)},
        removal=RemovalRules(
            scale_down_unready_enabled=False, max_bulk_soft_taint_count=4, scale_down_peak_margin_percent=20
        ),
    )
    assert chosen.actuation == ActuationOptions(8.0, False, 60, 180.0, daemonset_eviction_for_occupied_nodes=False)


@pytest.mark.parametrize(
    ("given", "thresholds"),
    [
        ({}, (0.5, 0.5)),
        ({"consolidation": "price"}, (1.0, 1.0)),
        ({"consolidation": "price", "scale_down_utilization_threshold": 0.0}, (0.0, 1.0)),
        ({"scale_down_gpu_utilization_threshold": 0.7}, (0.5, 0.7)),
    ],
)
def test_what_goes_without_a_new_node_goes_whatever_its_utilization_where_consolidation_is_by_price(
    given: dict[str, Any], thresholds: tuple[float, float]
) -> None:
    found = loaded(**given).scale_down.group
    assert (found.scale_down_utilization_threshold, found.scale_down_gpu_utilization_threshold) == thresholds


def test_the_preset_decides_what_makes_labels_popular() -> None:
    assert loaded().autoprovisioning.popularity is Popularity.PODS
    shipped = loaded(expander_preset="cluster-autoscaler")
    assert shipped.autoprovisioning.popularity is Popularity.CPU
    assert shipped.scale_up.preset is ranking.CLUSTER_AUTOSCALER


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"nodes": ("1:a",)}, "nodes[0]"),
        ({"nodes": ("1:2:a", "1:3:a")}, "nodes[1]"),
        ({"expander": "cheapest"}, "expander"),
        ({"min_cpu": 10, "max_cpu": 5}, "min-cpu"),
        ({"min_memory": 10, "max_memory": 5}, "min-memory"),
        ({"gpu_total": ("k80:4",)}, "gpu-total"),
        ({"gpu_total": ("k80:0:4", "k80:0:5")}, "gpu-total"),
        *(
            ({"gpu_total": (text,)}, "gpu-total")
            for text in ("nodes:0:5", ":0:5", "t4:0:1_0", "t4: 0:5", "t4:0:\u0665")
        ),
        ({"prices": "none"}, "prices"),
        ({"prices": "none", "expander": "priority,price"}, "prices"),
        ({"prices": "provider", "cloud_provider": "aws"}, "prices"),
        ({"node_autoprovisioning": True, "cloud_provider": "aws"}, "node-autoprovisioning"),
        ({"node_autoprovisioning": True, "cloud_provider": "externalgrpc"}, "node-autoprovisioning"),
        ({"prices": "/nowhere/prices.yaml"}, "(document)"),
        ({"node_groups": "/nowhere/groups.yaml"}, "(document)"),
        (
            {"initial_node_group_backoff_duration_seconds": 60, "max_node_group_backoff_duration_seconds": 30},
            "initial-node-group-backoff-duration",
        ),
    ],
)
def test_what_means_nothing_is_refused_by_name(settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        loaded(**settings)
    assert refused.value.field == field


@pytest.mark.parametrize("field", ["startup_taint", "status_taint"])
def test_a_taint_has_a_key(field: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=field):
        msgspec.convert({field: ("a", "")}, AutoscalerSettings)


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--autoprovisioning-prefix", "team/pool"),
        ("--autoprovisioning-prefix", " "),
        ("--scan-interval", "inf"),
        ("--status-config-map-name", "Bad Name"),
        ("--status-config-map-name", ""),
    ],
)
def test_flags_that_no_cluster_could_live_with_are_refused(flag: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=flag):
        flags(flag, value)


class Own:
    """A cloud that knows the price of some machines, and has none of pods."""

    def node_price(self, machine: Machine) -> float:
        if not machine.labels:
            raise Unpriced("which machine?")
        return 7.0

    def pod_price(self, requests: Amounts) -> float:
        raise NotOffered("not of pods")


@pytest.mark.parametrize(
    ("prices", "own", "kind"),
    [
        ("auto", None, GcePricing),
        ("auto", Own(), FirstOffered),
        ("provider", Own(), Own),
        ("provider", None, type(None)),
        ("gce", Own(), GcePricing),
        ("none", Own(), type(None)),
    ],
)
def test_prices_are_the_clouds_or_googles_as_is_wanted(prices: str, own: PricingModel | None, kind: type) -> None:
    assert type(loaded(prices=prices, expander="least-waste").pricing(lambda: own)) is kind


def test_what_the_cloud_has_no_prices_of_at_all_has_googles() -> None:
    model = loaded().pricing(Own)
    assert model is not None
    assert model.node_price(Machine({"cpu": 1000}, {"type": "m"})) == 7.0
    with pytest.raises(Unpriced, match="which machine"):
        model.node_price(Machine({"cpu": 1000}))
    assert model.pod_price({"cpu": 1000}) == GcePricing().pod_price({"cpu": 1000})


@pytest.mark.parametrize(("cloud", "marks"), [("karpenter", True), ("simulated", False)])
def test_a_cloud_says_that_it_marks_its_own_nodes(cloud: str, marks: bool) -> None:
    assert loaded(cloud_provider=cloud, expander="least-waste").marks_own_nodes is marks


def test_a_file_of_prices_is_read_at_once(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("machine_types: {m6i.xlarge: 0.192}")
    assert isinstance(loaded(prices=str(file)).pricing(lambda: None), FilePricing)
    file.write_text("machine_types: {m6i.xlarge: free}")
    with pytest.raises(InvalidInput, match=r"machine_types"):
        loaded(prices=str(file))


def test_all_groups_of_the_file_are_ours_and_take_part_as_their_policy_says(groups_file: Path) -> None:
    written(
        groups_file,
        {"name": "a", "cloud_provider_group_name": "as", "policy": "pending-pods", "min_nodes": 1, "max_nodes": 5},
        scaled("b", policy="both", mode="observe"),
        scaled("c", min_nodes=2, max_nodes=9),
        scaled("d", policy="both", dry_mode=True, min_nodes=0, max_nodes=3),
    )
    found = loaded(node_groups=str(groups_file))
    # The scan keeps the bounds of c itself, beside the cloud's.
    assert found.ownership.listed == {"as": SizeBounds(1, 5), "bs": None, "cs": None, "ds": SizeBounds(0, 3)}
    modes = [found.mode_of(each) for each in ("as", "bs", "cs", "ds")]
    assert modes == [Mode.ENFORCE, Mode.OBSERVE, Mode.OBSERVE, Mode.RECOMMEND]
    assert [each.name for each in found.groups] == ["a", "b", "c", "d"]
    assert [(each.group.name, each.dry) for each in found.scanned] == [("b", True), ("c", False), ("d", True)]
    assert [found.scan_mode_of(each.group) for each in found.scanned] == [Mode.OBSERVE, Mode.ENFORCE, Mode.RECOMMEND]
    own = [found.own_mode_of(each) for each in ("as", "bs", "cs", "ds", "other")]
    assert own == [Mode.ENFORCE, Mode.OBSERVE, Mode.ENFORCE, Mode.RECOMMEND, Mode.ENFORCE]
    assert [found.answers_pending_pods(each) for each in ("as", "bs", "cs", "other")] == [True, True, False, True]


def test_a_group_that_cannot_be_scaled_by_utilisation_is_refused_at_once(groups_file: Path) -> None:
    written(groups_file, scaled("a", scale_up_threshold_percent=5, hard_delete_grace_period=""))
    with pytest.raises(InvalidInput) as refused:
        loaded(node_groups=str(groups_file))
    assert str(groups_file) in str(refused.value)
    assert "taint_upper_capacity_threshold_percent must be less than scale_up_threshold_percent" in str(refused.value)
    assert "hard_delete_grace_period must not be empty" in str(refused.value)


def test_without_any_group_that_is_told(caplog: pytest.LogCaptureFixture) -> None:
    loaded()
    assert "no group is listed" in caplog.text


def test_a_group_never_goes_further_than_all_may(groups_file: Path) -> None:
    written(groups_file, scaled("a", policy="both", mode="enforce"), scaled("b", policy="both", mode="observe"))
    found = loaded(node_groups=str(groups_file), autoscaling_mode="recommend")
    assert [found.mode_of(each) for each in ("as", "bs", "other")] == [Mode.RECOMMEND, Mode.OBSERVE, Mode.RECOMMEND]
    assert [found.scan_mode_of(each.group) for each in found.scanned] == [Mode.RECOMMEND, Mode.OBSERVE]
    assert all(each.dry for each in found.scanned)


def test_a_group_is_listed_once(groups_file: Path) -> None:
    written(groups_file, {"name": "a", "cloud_provider_group_name": "as", "policy": "pending-pods"})
    with pytest.raises(InvalidInput, match="group a: cloud_provider_group_name"):
        loaded(nodes=("0:1:as",), node_groups=str(groups_file))


@pytest.mark.parametrize("word", ["off", "OFF", '"off"', "false"])
def test_predicted_peaks_are_off_however_that_is_written(groups_file: Path, word: str) -> None:
    lines = ("node_groups:", "- name: a", "  cloud_provider_group_name: as", f"  predicted_peaks: {word}")
    groups_file.write_text("\n".join(lines))
    (group,) = node_groups.load(groups_file)
    assert group.predicted_peaks is PredictedPeaks.OFF
    groups_file.write_text("\n".join(lines[:3]) + "\n  predicted_peaks: on\n")
    with pytest.raises(InvalidInput, match="predicted_peaks"):
        node_groups.load(groups_file)


def test_a_file_of_escalators_loads_as_it_is(groups_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    groups_file.write_text(
        """
node_groups:
  - name: "shared"
    label_key: "customer"
    label_value: 42
    cloud_provider_group_name: "shared-nodes"
    min_nodes: 1
    max_nodes: 30
    dry_mode: false
    taint_upper_capacity_threshold_percent: 40
    taint_lower_capacity_threshold_percent: 10
    slow_node_removal_rate: 2
    fast_node_removal_rate: 5
    scale_up_threshold_percent: 70
    scale_up_cool_down_period: 2m
    scale_up_cool_down_timeout: 10m
    soft_delete_grace_period: 1m
    hard_delete_grace_period: 10m
    max_node_age: 0
    aws:
      lifecycle: spot
"""
    )
    (group,) = node_groups.load(groups_file)
    assert (group.policy, group.takes_pending_pods) == (ScalingPolicy.UTILIZATION, False)
    assert (group.label_value, group.max_node_age) == ("42", "0")
    assert group.own_options == {"aws": AwsOptions(lifecycle="spot")}
    assert group.scale_up_threshold_percent == 70
    assert "scale_up_cool_down_timeout" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"name": ""}, "name"),
        ({"cloud_provider_group_name": ""}, "cloud_provider_group_name"),
        ({"policy": "sometimes"}, "policy"),
        ({"mode": "maybe"}, "mode"),
        ({"min_nodes": "many"}, "min_nodes"),
        ({"min_nodes": -1}, "min_nodes"),
        ({"min_nodes": 5, "max_nodes": 3}, "min_nodes"),
        ({"max_nodes": 10**25}, "max_nodes"),
        ({"provider": "simulated"}, "provider"),
        ({"Provider": "aws"}, "provider"),
        ({"compat": "karpenter"}, "compat"),
        ({"aws": {"resource_tagging": "yes"}}, "aws.resource_tagging"),
    ],
)
def test_a_bad_group_is_refused_by_file_group_and_field(groups_file: Path, wrong: dict[str, Any], field: str) -> None:
    written(groups_file, {"name": "a", "cloud_provider_group_name": "as", **wrong})
    with pytest.raises(InvalidInput) as refused:
        node_groups.load(groups_file)
    assert refused.value.field == f"node_groups[0].{field}"
    assert str(groups_file) in refused.value.source


@pytest.mark.parametrize(
    "text", ["", "[]", "node_groups: 3", "node_groups: [3]", "node_groups:\n- {", "a: \t1", "a: 2026-02-30"]
)
def test_what_is_no_file_of_groups_is_refused(groups_file: Path, text: str) -> None:
    groups_file.write_text(text)
    with pytest.raises(InvalidInput):
        node_groups.load(groups_file)


def test_names_are_not_given_twice(groups_file: Path) -> None:
    written(
        groups_file,
        {"name": "a", "cloud_provider_group_name": "as"},
        {"name": "a", "cloud_provider_group_name": "bs"},
    )
    with pytest.raises(InvalidInput) as refused:
        node_groups.load(groups_file)
    assert refused.value.field == "node_groups[1].name"


def test_a_manager_without_a_cloud_loads_nothing_of_the_autoscaler_but_its_settings() -> None:
    look = "import sys, manager.main; print(*[each for each in sys.modules if each.startswith('manager.autoscaler.')])"
    found = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=60)
    rooms = {each.split(".")[2] for each in found.stdout.split()}
    assert rooms == {"settings"}


@pytest.mark.parametrize("flag", ["--new-pod-scale-up-delay", "--max-node-startup-time"])
def test_a_time_without_an_end_is_refused(flag: str) -> None:
    flags(flag, "720h")
    with pytest.raises(InvalidInput, match=flag.removeprefix("--")):
        flags(flag, "721h")
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({f"{flag.removeprefix('--').replace('-', '_')}_seconds": float("inf")}, AutoscalerSettings)
