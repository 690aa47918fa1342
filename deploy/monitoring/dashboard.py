"""The Grafana dashboard as code: `python deploy/render.py` writes dashboard.json beside this file."""

PANELS = [
    ("Needs a person", "stat", [("blocked", "max(mooring_needs_you)"), ("late", "max(mooring_deadlines_at_risk)")]),
    ("Leading", "stat", [("leaders", "sum(mooring_leading)"), ("deciding", "max(mooring_deciding)")]),
    ("Waiting, by source", "timeseries", [("{{source}}", "sum by (source) (mooring_operators_waiting) > 0")]),
    ("Waiting, by reason", "timeseries", [("{{reason}}", "sum by (reason) (mooring_operators_waiting) > 0")]),
    ("Running, by source", "timeseries", [("{{source}}", "sum by (source) (mooring_operators_running) > 0")]),
    ("Ended", "timeseries", [("{{source}} {{how}}", "sum by (source, how) (rate(mooring_operators_total[5m]))")]),
    ("Writes", "timeseries", [("{{verb}} {{outcome}}", "sum by (verb, outcome) (rate(mooring_writes_total[5m]))")]),
    ("Admissions", "timeseries", [("{{outcome}}", "sum by (outcome) (rate(mooring_admissions_total[5m]))")]),
    (
        "Admission, 50th and 99th",
        "timeseries",
        [
            ("50 %", "histogram_quantile(0.5, sum by (le) (rate(mooring_admission_seconds_bucket[5m])))"),
            ("99 %", "histogram_quantile(0.99, sum by (le) (rate(mooring_admission_seconds_bucket[5m])))"),
        ],
    ),
    (
        "Extender",
        "timeseries",
        [("{{verb}} {{reason}}", "sum by (verb, reason) (rate(mooring_extender_requests_total[5m]))")],
    ),
    ("Events not taken in yet", "timeseries", [("{{pod}}", "mooring_inbox_events")]),
    ("Fleet: constraints missed", "timeseries", [("{{constraint}}", "max by (constraint) (mooring_fleet_unmet)")]),
]


def dashboard() -> dict:
    source = {"type": "prometheus", "uid": "${datasource}"}
    panels = [
        {
            "id": number + 1,
            "title": title,
            "type": kind,
            "datasource": source,
            "gridPos": {"h": 8, "w": 12, "x": 12 * (number % 2), "y": 8 * (number // 2)},
            "targets": [
                {"refId": chr(65 + k), "datasource": source, "legendFormat": legend, "expr": query}
                for k, (legend, query) in enumerate(queries)
            ],
        }
        for number, (title, kind, queries) in enumerate(PANELS)
    ]
    variable = {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    return {
        "uid": "mooring",
        "title": "Mooring",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [variable]},
        "panels": panels,
    }
