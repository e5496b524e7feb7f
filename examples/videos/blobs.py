"""A blob store on disk: paths, bytes and content types. S3 could stand behind these four methods."""

import os
import shutil
from pathlib import Path
from uuid import uuid4

_TYPE = ".content-type"


class Blobs:
    def __init__(self, root: Path) -> None:
        self.root = root

    def put(self, path: str, source: Path, content_type: str) -> None:
        """Store a file's bytes. A process killed meanwhile leaves no partial blob under the name."""
        place = self._place(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        part = place.with_name(f"{place.name}.{uuid4().hex}.part")
        try:
            part.write_text(content_type)
            os.replace(part, place.with_name(place.name + _TYPE))
            shutil.copyfile(source, part)
            os.replace(part, place)
        finally:
            part.unlink(missing_ok=True)

    def get(self, path: str, target: Path) -> None:
        """Copy a blob's bytes to a file."""
        place = self._place(path)
        if not place.is_file():
            raise FileNotFoundError(
                f"source blob not found: {path}; put it back and retry the job, or delete its media"
            )
        shutil.copyfile(place, target)

    def find(self, path: str) -> tuple[Path, str] | None:
        """Return the file and its content type, or None if there is no such blob."""
        place = self._place(path)
        if not place.is_file():
            return None
        return place, place.with_name(place.name + _TYPE).read_text()

    def delete(self, path: str) -> None:
        """Remove a blob. A missing blob is no error, since a deletion may be repeated."""
        place = self._place(path)
        place.unlink(missing_ok=True)
        place.with_name(place.name + _TYPE).unlink(missing_ok=True)

    def _place(self, path: str) -> Path:
        place = (self.root / path).resolve()
        if not place.is_relative_to(self.root.resolve()):
            raise ValueError(f"blob path {path!r} leads out of the store: give one inside it")
        return place
