"""One file for each thing that is promised about speed and size; the list of them is in table.py."""
