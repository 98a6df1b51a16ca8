"""How a figure moves with one quantity; the list of sweeps is in table.py."""
