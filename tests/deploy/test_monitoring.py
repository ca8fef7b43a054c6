"""The monitoring files agree with what the server declares, and with each other."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from service.buckets import UnservedReason
from service.device_figures import MissReason
from service.telemetry.gpu_figures import ClockEvent
from service.telemetry.metric_spec import MetricSpec
from service.telemetry.metrics import OWN, REASONS, STAGES
from service.telemetry.recorder import Recorder
from service.telemetry.reference import QUERIES
from tests.doubles.metric_names import sample_names

DEPLOY = Path(__file__).parents[2] / "deploy"
GRAFANA = DEPLOY / "grafana"
DASHBOARD: dict[str, Any] = json.loads((GRAFANA / "dashboards/inferlane.json").read_text())
TARGETS = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
EXPRESSIONS = [target["expr"] for target in TARGETS]
PROMETHEUS = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
ALERTS = [rule for group in yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"] for rule in group["rules"]]

NAME = re.compile(r"\b((?:inferlane|nv|process|python)_\w+)(?:\{([^}]*)\})?")
VALUED_MATCHER = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)\s*\"([^\"$]*)\"")
VALUES = {
    "outcome": {"ok", *REASONS},
    "stage": set(STAGES),
    "reason": {reason.value for reasons in (MissReason, UnservedReason, ClockEvent) for reason in reasons},
}
MATCHER = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")
LABELS_OF_A_SCRAPE = ("job", "instance")


def declared() -> dict[str, MetricSpec]:
    return {name: spec for spec in OWN for name in sample_names(spec)}


def library_names() -> set[str]:
    registry = CollectorRegistry()
    Recorder(registry=registry, triton_names_enabled=False)
    return {sample.name for metric in registry.collect() for sample in metric.samples} - declared().keys()


def unknown_values(expression: str) -> set[str]:
    """Values in matchers of those labels whose values are declared."""
    return {
        value
        for label, values in VALUED_MATCHER.findall(expression)
        for value in values.split("|")
        if label in VALUES and value not in VALUES[label]
    }


def unknown_names(expression: str) -> set[str]:
    known = declared().keys() | library_names()
    return {name for name, _ in NAME.findall(expression)} - known


def unknown_labels(expression: str) -> set[str]:
    unknown = set()
    for name, matchers in NAME.findall(expression):
        labels = declared()[name].labels if name in declared() else ()
        unknown |= set(MATCHER.findall(matchers)) - {*labels, *LABELS_OF_A_SCRAPE}
    return unknown


def labels_kept(expression: str) -> set[str]:
    kept = set(re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression))))
    if kept:
        return kept
    return {label for name, _ in NAME.findall(expression) if name in declared() for label in declared()[name].labels}


def test_the_checks_find_mistakes():
    assert unknown_names('rate(inferlane_request_seconds_total{model="m"}[5m])') == {"inferlane_request_seconds_total"}
    assert unknown_labels('rate(inferlane_requests_total{mode="m"}[5m])') == {"mode"}
    assert unknown_values('inferlane_gpu_clock_event{reason=~"hw_slowdown|heat"}') == {"heat"}


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *(query for _, query in QUERIES)])
def test_an_expression_names_declared_metrics_and_labels(expression):
    assert NAME.findall(expression)
    assert unknown_names(expression) == set()
    assert unknown_labels(expression.replace('"$model"', '"m"')) == set()
    assert unknown_values(expression) == set()


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_names_declared_metrics_labels_and_values(alert):
    expression = alert["expr"]
    assert unknown_names(expression) == unknown_labels(expression) == unknown_values(expression) == set()
    said = set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"]))
    assert said <= labels_kept(expression) | set(LABELS_OF_A_SCRAPE)
    assert alert["labels"]["severity"] in ("info", "warning", "critical")


def test_prometheus_reads_the_alerts_that_compose_mounts():
    compose = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text())
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["prometheus"]["volumes"])
    assert PROMETHEUS["rule_files"] == [mounts["./deploy/alerts.yml"]]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target["legendFormat"])
def test_a_legend_names_labels_that_the_expression_keeps(target):
    assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels_kept(target["expr"])


def test_the_dashboard_shows_every_metric_of_the_server():
    shown = {declared()[name].name for text in EXPRESSIONS for name, _ in NAME.findall(text) if name in declared()}
    assert {spec.name for spec in OWN} == shown


def test_panels_do_not_overlap():
    places = [
        {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        for at in (panel["gridPos"] for panel in DASHBOARD["panels"])
    ]
    assert sum(map(len, places)) == len(set().union(*places))


def test_the_dashboard_uses_the_provisioned_data_source():
    provisioned = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())
    uids = {source["uid"] for source in provisioned["datasources"]}
    assert {target["datasource"]["uid"] for target in TARGETS} == uids


def test_grafana_reads_the_folder_that_compose_mounts():
    providers = yaml.safe_load((GRAFANA / "provisioning/dashboards/inferlane.yml").read_text())["providers"]
    compose = yaml.safe_load((DEPLOY.parent / "docker-compose.yml").read_text())
    mounts = dict(volume.split(":")[:2] for volume in compose["services"]["grafana"]["volumes"])
    assert [provider["options"]["path"] for provider in providers] == [mounts["./deploy/grafana/dashboards"]]


def test_prometheus_scrapes_the_server():
    jobs = PROMETHEUS["scrape_configs"]
    assert [(job["job_name"], job["static_configs"][0]["targets"]) for job in jobs] == [
        ("inferlane", ["inferlane:8000"])
    ]
    assert all(job.get("metrics_path", "/metrics") == "/metrics" for job in jobs)
