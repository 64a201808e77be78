"""`python -m vclib`."""

import signal
import sys

from vclib.cli import main

if __name__ == "__main__":
    # Told to end, it cleans up as it does after Ctrl-C, and says what is kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
