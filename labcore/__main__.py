"""`python -m labcore VERB ...`"""

import sys

from labcore.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
