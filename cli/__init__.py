"""The ``envq`` command: one file a command, rendering apart from reading."""
