"""Names of the quantities of a facility."""

#: Quantities: energy of the machine and of the facility, and what the latter costs and emits.
QUANTITIES = ("energy_kwh", "facility_kwh", "cost_eur", "carbon_grams")
