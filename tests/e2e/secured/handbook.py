"""The roles that the handbook shows for `mongosh`, as commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_HANDBOOK = Path(__file__).parents[3] / "docs" / "how-to" / "privileges.md"


def create_role(name: str, database: str) -> dict[str, Any]:
    """The `createRole` command of the role, with `database` in place of the handbook's `shop`.

    The text between the brackets of `db.createRole(...)` is valid YAML.
    """
    for statement in _HANDBOOK.read_text(encoding="utf-8").split("db.createRole(")[1:]:
        role = yaml.safe_load(statement.partition(")")[0].replace('"shop"', f'"{database}"'))
        if role["role"] == name:
            return {"createRole": role.pop("role"), **role}
    raise LookupError(f"{_HANDBOOK} has no role {name}")
