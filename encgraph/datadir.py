"""Find the data that travels with the package: published distributions, recorded measurements."""

from pathlib import Path

import encgraph


def root() -> Path:
    """Folder of `traffic/` and `measurements/`: the packaged copy, else the checkout's.

    Raises:
        ValueError: If neither is there.
    """
    package = Path(encgraph.__file__).parent
    places = (package / "_data", package.parent / "data")
    for place in places:
        if place.is_dir():
            return place
    raise ValueError(f"no data folder at {[str(p) for p in places]!r}; reinstall encgraph")
