"""`sluice` for which a removed shard that is silent is gone at once: `python impatient_node.py server ...`.

Users have no option for the ten minutes, and a test has not the time.
"""

from __future__ import annotations

from datetime import timedelta

from cli.main import main
from source.sharded.hosts import former_shards

if __name__ == "__main__":
    former_shards.GONE_AFTER = timedelta()
    main()
