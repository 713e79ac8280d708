"""Write a software bill of materials in CycloneDX's JSON: what Headrace brings along when it runs, as installed here.

    .venv/bin/python scripts/sbom.py build/headrace.cdx.json

That is: the packages that it and its extras for users need, theirs in turn, and the files of npm packages in the console's pages,
which no list of Python packages has. Checksums of packages are in constraints-hashed.txt.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Any
from urllib.parse import quote

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
FOR_DEVELOPERS = ("bench", "docs", "dev")
SPDX = re.compile(r"[A-Za-z0-9.+-]+")  # one identifier; whatever else stands there is a name, or an expression


def main(argv: list[str]) -> int:
    """Write the file; returns the exit code."""
    path = Path(argv[0] if argv else ROOT / "build" / "headrace.cdx.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(bill(), indent=2, ensure_ascii=False) + "\n")
    sys.stdout.write(f"sbom: {path}\n")
    return 0


def bill() -> dict[str, Any]:
    """Return the bill of materials."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name for name in project["optional-dependencies"] if name not in FOR_DEVELOPERS}
    needs: dict[str, list[str]] = {}
    own = direct(project, extras)
    ahead = list(own)
    while ahead:
        name = ahead.pop()
        if name not in needs:
            needs[name] = sorted(set(required(distribution(name))))
            ahead += needs[name]
    packages = {name: package(distribution(name)) for name in sorted(needs)}
    pages = list(assets())
    root = component(
        "library", "headrace", project["version"], f"pkg:pypi/headrace@{project['version']}", project["license"]
    )
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {"timestamp": datetime.now(UTC).isoformat(timespec="seconds"), "component": root},
        "components": [*packages.values(), *pages],
        "dependencies": [
            {
                "ref": root["bom-ref"],
                "dependsOn": [packages[n]["bom-ref"] for n in own] + [p["bom-ref"] for p in pages],
            },
            *(
                {"ref": packages[n]["bom-ref"], "dependsOn": [packages[m]["bom-ref"] for m in needs[n]]}
                for n in packages
            ),
        ],
    }


def direct(project: dict[str, Any], extras: set[str]) -> list[str]:
    """Return the packages that Headrace itself names, with those of its extras."""
    lines = [*project["dependencies"], *(line for name in extras for line in project["optional-dependencies"][name])]
    return sorted({canonicalize_name(Requirement(line).name) for line in lines} - {"headrace"})


def required(found: Distribution) -> Iterator[str]:
    """Yield the packages that another one needs on this machine, without its extras."""
    for line in found.requires or ():
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def package(found: Distribution) -> dict[str, Any]:
    """Return the component of an installed package."""
    name, words = canonicalize_name(found.metadata["Name"]), found.metadata
    declared = words.get("License-Expression") or next(
        (line.rpartition(" :: ")[2] for line in words.get_all("Classifier", []) if line.startswith("License ::")), None
    )
    return component("library", name, found.version, f"pkg:pypi/{quote(name)}@{quote(found.version)}", declared)


def assets() -> Iterator[dict[str, Any]]:
    """Yield the npm packages whose files are in the console's pages, with the checksums of the files."""
    for entry in json.loads((ROOT / "src/headrace/console/assets.json").read_text())["packages"]:
        if entry["use"] == "console":
            name, version = entry["name"], entry["version"]
            made = component("library", name, version, f"pkg:npm/{quote(name)}@{version}", entry["license"])
            made["components"] = [
                {"type": "file", "name": file, "hashes": [{"alg": "SHA-256", "content": sum_}]}
                for file, sum_ in entry["files"].items()
            ]
            yield made


def component(kind: str, name: str, version: str, purl: str, licence: str | None) -> dict[str, Any]:
    """Return a component as CycloneDX has it."""
    made: dict[str, Any] = {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}
    if licence:
        words = licence.strip()
        if " " not in words and SPDX.fullmatch(words):
            made["licenses"] = [{"license": {"id": words}}]
        elif re.search(r" (AND|OR|WITH) ", words):
            made["licenses"] = [{"expression": words}]
        else:
            made["licenses"] = [{"license": {"name": words}}]
    return made


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
