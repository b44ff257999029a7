"""`Touched`: what several DDLs touch together. Pure."""

from __future__ import annotations

from changefeed.records.ddl import Scope
from changefeed.table import TableId, TableName


class Touched:
    """Meets a scope if one of the scopes added to it does. In sets: dropping a database of 10,000 tables is 10,000 DDLs."""

    def __init__(self) -> None:
        self._tables = set[TableId]()
        self._names = set[TableName]()
        self._databases = set[str]()
        self._named = set[str]()
        """The databases of the names."""

    def add(self, scope: Scope) -> None:
        self._tables |= scope.tables | scope.apart
        self._names |= scope.names
        self._databases |= scope.databases
        self._named |= {name.db for name in scope.names}

    def meets(self, scope: Scope) -> bool:
        return not (
            self._tables.isdisjoint(scope.tables)
            and self._tables.isdisjoint(scope.apart)
            and self._names.isdisjoint(scope.names)
            and self._databases.isdisjoint(scope.databases)
            and self._databases.isdisjoint(name.db for name in scope.names)
            and self._named.isdisjoint(scope.databases)
        )
