"""The reports of an iteration: API, metrics, Events, status ConfigMap and decision log.

`answers` makes one `Plan` of an iteration: the decision log's line, the API's answer, what the page shows and what
`headroom plan` prints. Its rows are the decisions' own structs where these have the published form (ranks, caps,
expander steps, thresholds and steps of scans, readiness, skipped groups); each other row states what differs from the
decision that it is made of (`rows`), by subject: `scale_up_rows`, `group_rows`, `node_status` and `node_rows`.
Events, `counters` and `gauges`, the status ConfigMap and the status of custom resources quote the same iteration.
"""
