"""``python -m envq``: the same as the ``envq`` command."""

from __future__ import annotations

from envq.cli.app import main

if __name__ == "__main__":
    main()
