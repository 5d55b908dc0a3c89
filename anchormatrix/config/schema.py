"""The JSON schema of the configuration, generated from its record."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from anchormatrix.config.project import ROOT
from anchormatrix.records.settings.whole import Settings

SCHEMA_FILE = ROOT / "config" / "config.schema.yaml"

_HEADER = "# Generated from anchormatrix/records/settings/ by `make schema`; change the record, not this file.\n"


@cache
def configuration_schema() -> dict[str, Any]:
    """The schema of a whole configuration, as JSON Schema 2020-12."""
    _, definitions = msgspec.json.schema_components([Settings], ref_template="#/$defs/{name}")
    whole = definitions.pop(Settings.__name__)
    whole |= {"title": "Configuration of the experiment workflow"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "$defs": definitions}


def schema_text() -> str:
    """The text of ``config/config.schema.yaml``, which editors use."""
    return _HEADER + yaml.dump(configuration_schema(), Dumper=_Plain, sort_keys=False, allow_unicode=True, width=120)


def write_schema(path: Path = SCHEMA_FILE) -> None:
    """Write the schema for editors and readers."""
    path.write_text(schema_text(), encoding="utf-8")


class _Plain(yaml.SafeDumper):
    """A dumper that repeats a value met twice, where an alias would be hard to read."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


if __name__ == "__main__":
    write_schema()
