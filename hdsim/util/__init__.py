"""Helpers: units, numbers and tables as text, arrays, interval sets, files, rules of settings, plug-ins, resources."""
