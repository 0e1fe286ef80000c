"""Helpers without a model of their own: units, interval sets, files, plug-ins, resources."""
