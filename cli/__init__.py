"""The command line."""

import coordination as coordination  # must come before the first module that imports gRPC
