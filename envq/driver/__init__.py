"""The driver: its connection, its declarations, its own copies."""
