"""Facilities around machines: cooling, rectifiers, outside temperature, price and carbon intensity of power."""
