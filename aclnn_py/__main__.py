"""``python -m aclnn_py``."""

import sys

from .cli import main

sys.exit(main())
