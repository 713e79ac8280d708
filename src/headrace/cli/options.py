"""Options and arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

# Typer writes the type of an option beside it, <bool> for a flag: an empty metavar leaves that out.
FLAG = ""
SIZE = "SIZE"  # metavar of sizes, which commands take as text such as 64MiB

RelationArgument = Annotated[Path, typer.Argument(metavar="PATH", help="The relation's directory.")]
JsonOption = Annotated[bool, typer.Option("--json", metavar=FLAG, help="Write JSON.")]
FrequenciesOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --order frequency: Parquet or CSV with the key columns and frequency, how often each key is asked for.",
    ),
]
SortingMemoryOption = Annotated[str, typer.Option(metavar=SIZE, help="What sorting may hold, such as 512MiB or 1g.")]
