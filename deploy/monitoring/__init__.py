"""What Prometheus and Grafana get: dashboards made from code, and the tests' view of the chart's rules."""
