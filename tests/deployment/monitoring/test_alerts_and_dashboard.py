"""Alerts and dashboard under deploy/ parse and name only what /metrics exports; each alert has its section in the docs."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import promql_parser
import pytest
import yaml
from django.conf import settings
from prometheus_client.metrics_core import Metric

from billing.models import ScheduledTask
from ledger.telemetry.metrics import OWN
from ledger_project.monitoring import gauges, work_checks
from ledger_project.monitoring.gauges import DatabaseGauges
from ledger_project.work.timetable import Lane, named

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
    # The page of requests shows the second of those that are left.
    named = {selector.name for expression in expressions for selector in selectors(promql_parser.parse(expression))}
    assert {name.removesuffix("_sum") for name in exported} - {
        re.sub("_(sum|count|bucket)$", "", name) for name in named
    } - named == {"ledger_task_started_timestamp_seconds", "ledger_http_key_calls_total"}


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


def lane_late_s(lane: Lane, late_s: float) -> float:
    """What is exported of a lane, one of whose tasks should have ended its turn that many seconds ago."""
    task = named([], [lane])[0]
    due_at = datetime.now(UTC) - timedelta(seconds=late_s + (task.turn_s or 0))
    ScheduledTask.objects.update_or_create(name=task.name, defaults={"due_at": due_at, "started_at": due_at})
    [family] = gauges._lanes()
    [value] = [sample.value for sample in family.samples if sample.labels == {"lane": lane}]
    return float(value)


def seconds(text: str) -> int:
    """A duration as Prometheus writes it."""
    return int(text[:-1]) * {"s": 1, "m": 60}[text[-1]]


def longest_until_it_fires(rule: dict[str, Any], values: list[float], *, scraped_every_s: int, evaluated_every_s: int) -> int:
    """How many seconds pass before a rule `max(METRIC) > NUMBER` fires, at worst.

    Args:
        values: of the metric, a second apart, from when the task is late.
    """
    parsed = promql_parser.parse(rule["expr"])
    assert (str(parsed.op), str(parsed.lhs.op)) == (">", "max")
    steps = 5
    latest = 0
    for scraped_at in range(0, scraped_every_s, steps):
        for evaluated_at in range(0, evaluated_every_s, steps):
            since = fires_at = None
            for at in range(evaluated_at, len(values), evaluated_every_s):
                last = scraped_at + (at - scraped_at) // scraped_every_s * scraped_every_s
                is_true = last >= 0 and values[last] > parsed.rhs.val
                since = (at if since is None else since) if is_true else None
                if since is not None and at - since >= seconds(rule.get("for", "0s")):
                    fires_at = at
                    break
            latest = max(latest, len(values) if fires_at is None else fires_at)
    return latest


@pytest.mark.django_db
@pytest.mark.parametrize(("alert", "lane"), [("LedgerMoneyLate", Lane.MONEY), ("LedgerOutboundLate", Lane.OUTBOUND)])
def test_an_alert_fires_within_a_minute_of_the_end_of_a_turn_that_was_due(alert: str, lane: Lane) -> None:
    [rule] = [rule for rule in alert_rules() if rule["alert"] == alert]
    assert f'ledger_lane_late_seconds{{lane="{lane}"}}' in rule["expr"]
    [group] = yaml.safe_load(ALERTS.read_text())["groups"]
    [job] = yaml.safe_load((ALERTS.parent / "prometheus.yml").read_text())["scrape_configs"]
    values = [lane_late_s(lane, late_s) for late_s in range(240)]
    assert values[0] < 1
    scraped_every_s = seconds(job["scrape_interval"])
    fires_after_s = longest_until_it_fires(
        rule, values, scraped_every_s=scraped_every_s, evaluated_every_s=seconds(group["interval"])
    )
    assert 0 < fires_after_s <= 60
    # With what Prometheus does by default, or with a time for which it has to last, it is later.
    assert longest_until_it_fires(rule, values, scraped_every_s=scraped_every_s, evaluated_every_s=60) > 60
    lasting = {**rule, "for": "1m"}
    assert (
        longest_until_it_fires(lasting, values, scraped_every_s=scraped_every_s, evaluated_every_s=seconds(group["interval"]))
        > 60
    )


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
