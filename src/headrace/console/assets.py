"""The third-party files of the pages: which ones there should be, and which are missing."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from headrace.files import is_file

HERE = Path(__file__).parent
PLACE = HERE / "assets"


@dataclass(frozen=True)
class Asset:
    """A file of an npm package, as the manifest names it."""

    package: str
    version: str
    file: str
    sha256: str

    @property
    def path(self) -> str:
        """Where it lies below the directory of assets, and below ``/assets/`` on the server."""
        return f"{self.package}/{self.file}"


def manifest() -> tuple[Asset, ...]:
    """The files that the pages use, from ``assets.json``."""
    packages = json.loads((HERE / "assets.json").read_text())["packages"]  # files: packaged with the code
    return tuple(
        Asset(package["name"], package["version"], file, sha256)
        for package in packages
        if package["use"] == "console"
        for file, sha256 in package["files"].items()
    )


def missing(place: Path = PLACE) -> list[str]:
    """Packages, with their version, of which a file is not there: the pages work without, and say what they cannot show.

    Example:
        >>> missing(Path("/nowhere"))[:2]
        ['leaflet 1.9.4', 'uplot 1.6.32']
    """
    absent = (f"{asset.package} {asset.version}" for asset in manifest() if not is_file(place / asset.path))
    return list(dict.fromkeys(absent))
