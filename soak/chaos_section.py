"""The section "chaos" of `make soak`: `make soak KILLS=1000`."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soak.chaos import SPARK_SHARE, chaos
from soak.section_options import run_section, section_parser

_EACH = 400  # kills for which each of the long events happens once more


def run(argv: list[str]) -> int:
    """Kill everything at random; exit code 1 if something was lost, doubled or otherwise wrong."""
    parser = section_parser("chaos", "Kill everything at random; nothing must be lost.")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None, help="of what is killed when; any by default, and shown")
    parser.add_argument(
        "--limit", type=float, default=None, help="seconds after which the run hangs; 20 minutes and 6 s a kill"
    )
    parser.add_argument("--summary", type=Path, default=Path("build/soak"), help="NAME of NAME.json and NAME.md")
    parser.add_argument("--spark-share", type=float, default=SPARK_SHARE, help="of kills; %(default)s by default")
    parser.add_argument(
        "--long", type=int, default=None, help="times of each long event; one for every 400 kills by default"
    )
    options = parser.parse_args(argv)
    seed = secrets.randbits(32) if options.seed is None else options.seed

    def work(root: Path, say: Callable[[str], None]) -> tuple[dict[str, Any], list[str]]:
        say(f"{options.kills} kills, seed {seed}")
        long = max(1, options.kills // _EACH) if options.long is None else options.long
        share = options.spark_share
        found = chaos(root, options.kills, seed, say, long=long, limit=options.limit, spark_share=share)
        options.summary.parent.mkdir(parents=True, exist_ok=True)
        found.write(options.summary)
        say(found.table())
        say(found.words())
        again = f"again with: make soak ARGS='chaos --kills {options.kills} --seed {seed}'"
        return found.as_json(), [] if found.whole else [*found.faults, again]

    return run_section(options, work)
