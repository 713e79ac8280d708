"""Section: what every model of a part of a pipeline file is made from."""

from __future__ import annotations

from typing import ClassVar

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section (a TOML table) of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, arbitrary_types_allowed=True)
    what: ClassVar[str] = "the file"
