"""Alerts and dashboard under deploy/ parse and name only what /metrics exports; each alert has its section in the docs."""

import json
import re
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from django.conf import settings
from prometheus_client.metrics_core import Metric

from ledger.telemetry.metrics import OWN
from ledger_project.monitoring import gauges, work_checks
from ledger_project.monitoring.gauges import DatabaseGauges

ALERTS = settings.BASE_DIR / "deploy/prometheus/alerts.yml"
DASHBOARD = settings.BASE_DIR / "deploy/grafana/dashboard.json"
PROMETHEUS_OWN = {"up"}
"""What Prometheus itself knows of a target."""
SUFFIXES = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"], "gauge": [""], "info": ["_info"]}

Labels = dict[str, set[str]]


def alert_rules() -> list[dict[str, Any]]:
    """All rules of the alerts file."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def dashboard_queries() -> Iterator[str]:
    """All queries of the dashboard."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield target["expr"].replace("$__rate_interval", "1m")


def selectors(node: Any) -> Iterator[Any]:
    """Every selector of a metric in a parsed expression."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        child = getattr(node, name, None)
        if child is not None:
            yield from selectors(child)
    for child in getattr(node, "args", None) or []:
        yield from selectors(child)


@pytest.fixture
def exported(db: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, write_anchor: Any) -> Labels:
    """The names of all samples, and the labels of each."""
    monkeypatch.setattr(settings, "ANCHOR_DIR", tmp_path)
    monkeypatch.setattr(settings, "EMBEDDED_SERVER", True)
    write_anchor(tmp_path / "anchor", "2026-01-01T00:00:00Z")
    assert work_checks.newest_anchor() is not None
    families: list[Metric] = [*OWN.collect(), *DatabaseGauges().collect()]
    labels_of = {
        collector._name: set(collector._labelnames) for collector in OWN._collector_to_names if hasattr(collector, "_labelnames")
    }
    found = {}
    for family in families:
        labels = labels_of.get(family.name, set()) | set(getattr(family, "_labelnames", ()))
        labels |= {name for sample in family.samples for name in sample.labels}
        for suffix in SUFFIXES[family.type]:
            found[family.name + suffix] = labels | ({"le"} if suffix == "_bucket" else set())
    return found


def unknown_names(expression: str, exported: Labels) -> list[str]:
    """What an expression names that is not exported: metrics, and labels of metrics."""
    wrong = []
    for selector in selectors(promql_parser.parse(expression)):
        if selector.name in PROMETHEUS_OWN:
            continue
        if selector.name not in exported:
            wrong.append(selector.name)
            continue
        wrong += [
            f"{selector.name}.{each.name}" for each in selector.matchers.matchers if each.name not in exported[selector.name]
        ]
    return wrong


def test_every_expression_parses_and_names_only_what_is_exported(exported: Labels) -> None:
    expressions = [*(rule["expr"] for rule in alert_rules()), *dashboard_queries()]
    assert len(expressions) > 40
    assert {expression: wrong for expression in expressions if (wrong := unknown_names(expression, exported))} == {}
    named = {selector.name for expression in expressions for selector in selectors(promql_parser.parse(expression))}
    assert {name.removesuffix("_sum") for name in exported} - {
        re.sub("_(sum|count|bucket)$", "", name) for name in named
    } - named == {"ledger_task_started_timestamp_seconds"}


def test_control_an_unknown_metric_an_unknown_label_and_a_mistake_are_found(exported: Labels) -> None:
    assert unknown_names("sum(rate(ledger_spends_total[5m])) > 1", exported) == ["ledger_spends_total"]
    assert unknown_names('ledger_database_up{host="a"} == 0', exported) == ["ledger_database_up.host"]
    with pytest.raises(ValueError, match="unclosed"):
        promql_parser.parse("sum(rate(ledger_refusals_total[5m])")


def test_every_alert_says_how_bad_it_is_and_has_its_section_in_the_docs() -> None:
    headings = re.findall(r"^## (\w+)$", (settings.BASE_DIR / "docs/how-to/operations/alerts.md").read_text(), re.MULTILINE)
    assert [rule["alert"] for rule in alert_rules()] == headings
    for rule in alert_rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert rule["annotations"]["summary"].endswith(".")


def test_the_example_for_prometheus_reads_the_alerts_and_sends_the_token() -> None:
    example = yaml.safe_load((ALERTS.parent / "prometheus.yml").read_text())
    assert example["rule_files"] == [ALERTS.name]
    (job,) = example["scrape_configs"]
    assert 'up{job="credit-ledger"}' in alert_rules()[0]["expr"]
    assert (job["job_name"], "credentials_file" in job["authorization"]) == ("credit-ledger", True)


def test_the_dashboards_panels_do_not_overlap_and_ask_the_chosen_prometheus() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    covered: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & covered, panel["title"]
        covered |= cells
        assert panel["type"] == "row" or panel["datasource"]["uid"] == "${datasource}"
    assert gauges.READS
