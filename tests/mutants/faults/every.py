"""`FAULTS`: all faults by the room of the product that has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.mutants.fault import Fault
from tests.mutants.faults.admin import ADMIN
from tests.mutants.faults.changefeed import CHANGEFEED
from tests.mutants.faults.cli import CLI
from tests.mutants.faults.console import CONSOLE
from tests.mutants.faults.coordination import COORDINATION
from tests.mutants.faults.credentials import CREDENTIALS
from tests.mutants.faults.node import NODE
from tests.mutants.faults.owner import OWNER
from tests.mutants.faults.processor import PROCESSOR
from tests.mutants.faults.pyspark_sluice import PYSPARK_SLUICE
from tests.mutants.faults.schema_store import SCHEMA_STORE
from tests.mutants.faults.sink import SINK
from tests.mutants.faults.sluice_client import SLUICE_CLIENT
from tests.mutants.faults.source import SOURCE
from tests.mutants.faults.verify import VERIFY

FAULTS: Mapping[str, Sequence[Fault]] = {
    "changefeed": CHANGEFEED,
    "credentials": CREDENTIALS,
    "console": CONSOLE,
    "coordination": COORDINATION,
    "sluice_client": SLUICE_CLIENT,
    "source": SOURCE,
    "pyspark_sluice": PYSPARK_SLUICE,
    "schema_store": SCHEMA_STORE,
    "sink": SINK,
    "owner": OWNER,
    "processor": PROCESSOR,
    "verify": VERIFY,
    "admin": ADMIN,
    "node": NODE,
    "cli": CLI,
}
