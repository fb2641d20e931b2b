"""The reports of an iteration: API, metrics, Events, status ConfigMap and decision log.

`answers` makes one `Plan` of an iteration: the decision log's line, the API's answer, what the page shows and what
`headroom plan` prints. Its rows are the decisions' own structs where these have the published form (ranks, caps,
expander steps, thresholds and steps of scans, readiness, skipped groups); each other row stands beside the one function
that makes it, by subject: `scale_up_rows`, `group_rows`, `node_rows`.
Events and metrics quote the same iteration.
"""
