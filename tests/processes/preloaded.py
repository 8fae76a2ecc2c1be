"""A module that sets a variable for a library that reads it late, as models do for MKL: test_launcher preloads it."""

import os

os.environ.setdefault("SLIME_TEST_SET_BY_IMPORT", "by the module")
