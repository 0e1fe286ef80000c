"""What came out of a replay: columns, metrics, time series, run directories."""
