"""Faults of the room `schema_store`."""

from __future__ import annotations

from tests.mutants.fault import Fault

SCHEMA_STORE = (
    Fault(
        "a rename leaves the old name with its table",
        "            self._replace(event.renamed_to, event)\n            self._name(table.name, event.position, None)\n",
        "            self._replace(event.renamed_to, event)\n",
    ),
    Fault(
        "a rename onto a table does not end it",
        "            self._replace(event.renamed_to, event)\n            self._name(table.name, event.position, None)\n",
        "            self._name(table.name, event.position, None)\n",
    ),
    Fault(
        "a drop of a database ends only its first table",
        "            for name in tuple(self._layers.names_in(event.db)):\n                self._end_occupant(name, event)\n",
        "            for name in tuple(self._layers.names_in(event.db))[:1]:\n                self._end_occupant(name, event)\n",
    ),
    Fault(
        "an event below a base is applied to it again",
        "        if self._floor is not None and event.position < self._floor:\n            return\n",
        "",
    ),
    Fault(
        "open records change the schemas",
        "new = [record for record in records if not record.open and record.position not in self.taken]",
        "new = [record for record in records if record.position not in self.taken]",
    ),
    Fault(
        "records at the checkpoint are folded",
        "below = [record for record in ordered if record.position < checkpoint and not record.open]",
        "below = [record for record in ordered if record.position <= checkpoint and not record.open]",
    ),
    Fault(
        "the base of a table that ended stays",
        "remove=tuple(sorted(ended & self.bases.keys()))",
        "remove=()",
    ),
    Fault(
        "a folded base loses the size of its table",
        "return replace(schema, size=base.size if base else None)",
        "return replace(schema, size=None)",
    ),
    Fault(
        "an index that is there already is added again",
        '        if known is None:\n            present[index["name"]] = index\n            added.append(specification(index))',
        '        if known is None or known != index:\n            present[index["name"]] = index\n'
        "            added.append(specification(index))",
    ),
    Fault(
        "an option that is switched off stays in the schema",
        "    else:\n        fields.pop(field, None)\n\n\ndef _modified_timeseries",
        "\n\ndef _modified_timeseries",
    ),
    Fault(
        "a new UUID takes the place of the earlier ones",
        "replace(table, uuids=(*table.uuids, uuid))",
        "replace(table, uuids=(uuid,))",
    ),
)
