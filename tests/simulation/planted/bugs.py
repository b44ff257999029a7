"""`BUGS`: plausible bugs, which prove that the simulation finds them.

They are not in the product: a switch for a bug would itself be a bug.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.planted.bug import Bug
from tests.simulation.planted.cluster_bugs import CLUSTER_BUGS
from tests.simulation.planted.copy_bugs import COPY_BUGS
from tests.simulation.planted.history_bugs import HISTORY_BUGS
from tests.simulation.planted.letter_bugs import LETTER_BUGS
from tests.simulation.planted.owner_bugs import OWNER_BUGS
from tests.simulation.planted.window_bugs import WINDOW_BUGS

BUGS: Mapping[str, Bug] = {
    **OWNER_BUGS,
    **WINDOW_BUGS,
    **HISTORY_BUGS,
    **COPY_BUGS,
    **LETTER_BUGS,
    **CLUSTER_BUGS,
}
