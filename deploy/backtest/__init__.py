"""`headroom backtest`: judges models of the peak on recorded usage, from files or from Prometheus."""
