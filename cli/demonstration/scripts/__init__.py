"""Drivers that ``envq demo`` runs as ``__main__``; workers never import them."""
