"""See `cli`: what a worker process is to run must not lie in a module of this name."""

from __future__ import annotations

import sys

from reproduction.cli import main

if __name__ == "__main__":
    sys.exit(main())
