"""Results of a replay: columns, metrics, time series, run directories."""
