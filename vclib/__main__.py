"""`python -m vclib`."""

import sys

from vclib.cli import main

if __name__ == "__main__":
    sys.exit(main())
