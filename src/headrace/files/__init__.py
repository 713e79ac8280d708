"""How files are written so that a crash, a full disk or a cut write leaves the old state or the new one. (DESIGN D11)"""

from headrace.files.local import (
    NotRegular,
    create_exclusively,
    open_new,
    open_regular,
    read_regular,
    sync_directory,
    write_all,
)

__all__ = [
    "NotRegular",
    "create_exclusively",
    "open_new",
    "open_regular",
    "read_regular",
    "sync_directory",
    "write_all",
]
