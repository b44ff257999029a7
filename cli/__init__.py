"""The command line."""

import coordination as coordination  # before the first module that imports gRPC
