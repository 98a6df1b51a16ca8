"""What is in Redis: keys, scripts, and one store for each kind of record."""
