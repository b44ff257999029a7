"""`BUGS`: plausible bugs, which prove that the simulation finds them.

They are not in the product: a switch for a bug would itself be a bug.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.planted.bug import Bug
from tests.simulation.planted.cluster_bugs import CLUSTER_BUGS
from tests.simulation.planted.copy_bugs import COPY_BUGS
from tests.simulation.planted.gathered_bugs import GATHERED_BUGS
from tests.simulation.planted.history_bugs import HISTORY_BUGS
from tests.simulation.planted.key_bugs import KEY_BUGS
from tests.simulation.planted.letter_bugs import LETTER_BUGS
from tests.simulation.planted.message_bugs import MESSAGE_BUGS
from tests.simulation.planted.owner_bugs import OWNER_BUGS
from tests.simulation.planted.step_bugs import STEP_BUGS
from tests.simulation.planted.sync_bugs import SYNC_BUGS
from tests.simulation.planted.topic_bugs import TOPIC_BUGS
from tests.simulation.planted.unique_bugs import FULL_BUGS, UNIQUE_BUGS
from tests.simulation.planted.window_bugs import WINDOW_BUGS

FAMILIES: Mapping[str, Mapping[str, Bug]] = {
    "owner": OWNER_BUGS,
    "windows": WINDOW_BUGS,
    "history": HISTORY_BUGS,
    "copies": COPY_BUGS,
    "keys": KEY_BUGS,
    "letters": LETTER_BUGS,
    "clusters": CLUSTER_BUGS,
    "steps": STEP_BUGS,
    "messages": MESSAGE_BUGS,
    "topics": TOPIC_BUGS,
    "unique": UNIQUE_BUGS,
    "full tables": FULL_BUGS,
    "gathered": GATHERED_BUGS,
    "sync points": SYNC_BUGS,
}
BUGS: Mapping[str, Bug] = {name: bug for family in FAMILIES.values() for name, bug in family.items()}
ALWAYS = sorted(min(family, key=lambda name: family[name].found_within) for family in FAMILIES.values())
"""One of each family, the one that is found soonest: `make test` looks for these, `make planted` for all."""
