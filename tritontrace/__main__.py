"""``python -m tritontrace``: the console command."""

import sys

from tritontrace.cli import main

if __name__ == "__main__":
    sys.exit(main())
