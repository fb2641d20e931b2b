"""`python -m manager`."""

import sys

from manager.main import main

sys.exit(main(sys.argv[1:]))
