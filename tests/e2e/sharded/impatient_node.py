"""`sluice` for which a removed shard that is silent is gone at once: `python impatient_node.py server ...`.

Users have no option for the ten minutes, and a test has not the time.
"""

from __future__ import annotations

from datetime import timedelta

from cli.main import main
from source.sharded import cluster_clients

if __name__ == "__main__":
    cluster_clients.GONE_AFTER = timedelta()
    main()
