"""Forecasts of the workloads of gangs from series of measured values."""
