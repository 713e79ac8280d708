"""`make soak`: what must not break, kept up for a while. Each section is a module; the warehouse must be whole after each.

make soak                                    every section, the long ones in a bounded form
make soak KILLS=1000                         chaos alone, with so many kills
make soak ARGS="chaos --kills 5 --seed 1"    one section, with options of its own
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys

#: Each section: the module with its `run(argv) -> int`, and the options that bound it when all of them run.
SECTIONS: dict[str, tuple[str, tuple[str, ...]]] = {
    "chaos": ("soak.chaos_section", ("--kills", "50")),
    "burst": ("soak.burst", ()),
    "promise": ("soak.promise", ()),
    "tests": ("soak.long_tests", ()),
    "fuzz": ("soak.fuzz", ("--seconds", "60")),
    "fuzz-storage": ("soak.fuzz_storage", ("--seconds", "60")),
    "memory": ("soak.memory", ("--seconds", "600")),
    "faults": ("soak.faults", ()),
    "crashes": ("soak.crashes", ()),
    "simulation": ("soak.simulation", ("--seconds", "3600")),
}


def main(argv: list[str] | None = None) -> int:
    """Exit code 1 if something is not as it must be."""
    given = sys.argv[1:] if argv is None else argv
    chosen = []
    while given and not given[0].startswith("-"):
        chosen.append(given.pop(0))
    if given[:1] in (["-h"], ["--help"]) and not chosen:
        print(f"{__doc__}\nSections: {', '.join(SECTIONS)}")
        return 0
    if unknown := [name for name in chosen if name not in SECTIONS]:
        print(f"make soak: {unknown[0]!r} is none of {', '.join(SECTIONS)}", file=sys.stderr)
        return 2
    if given and not chosen:
        chosen = ["chaos"]  # options alone are those of the chaos
    wrong = []
    for name in chosen or SECTIONS:
        module, bounded = SECTIONS[name]
        if importlib.util.find_spec(module) is None:
            print(f"{name}: there is no {module} here; left out", flush=True)
            continue
        print(f"== {name}", flush=True)
        # A process each: memory is measured in some, and Spark cannot be started anew in one.
        command = [sys.executable, "-m", "soak.section", name, *(given if chosen else bounded)]
        if code := subprocess.run(command).returncode:
            wrong.append(f"{name} ended with {code}")
    print("\n".join(wrong) or "whole: every row is there once", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
