"""The identity of a disk: which node's workspaces a data directory has. Host names change, the file does not."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import UUID, uuid4

from toolcrib.core.errors import Misconfigured
from toolcrib.core.json_text import json_text
from toolcrib.runtime.durable_file import create_durably, replace_durably
from toolcrib.runtime.process_setup import make_private

_FILE = "node.json"


@dataclass(frozen=True, slots=True)
class DiskIdentity:
    """The node that a data directory belongs to, and an id that no other disk has."""

    node: str
    disk_id: UUID

    @classmethod
    def load(cls, data_dir: Path) -> "DiskIdentity | None":
        """Read the identity of a data directory. None if no server has used it yet.

        Raises:
            Misconfigured: The file is damaged.
        """
        path = data_dir / _FILE
        try:
            row = json.loads(path.read_bytes())
            return cls(str(row["node"]), UUID(row["disk_id"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise Misconfigured(
                f"{path} is damaged. Delete it, and start the server with the node's name in TOOLCRIB_NODE_NAME: "
                "`toolcrib nodes list` shows the names."
            ) from None

    @classmethod
    def ensure(cls, data_dir: Path, node: str) -> "DiskIdentity":
        """Return the identity of a data directory. The first server that uses it creates one, for this node.

        Raises:
            Misconfigured: It is another node's.
        """
        fresh = cls(node, uuid4())
        make_private(data_dir, data_dir)
        # Of two processes that start at the same time, one creates it.
        found = cls.load(data_dir) or (fresh if create_durably(data_dir / _FILE, fresh._body) else cls.load(data_dir))
        assert found is not None
        if found.node != node:
            raise Misconfigured(
                f"The workspaces in {data_dir} are those of node {found.node!r}, and TOOLCRIB_NODE_NAME is {node!r}. "
                f"Unset TOOLCRIB_NODE_NAME, or rename the node here: `toolcrib nodes rename {found.node} {node}`."
            )
        return found

    def save(self, data_dir: Path) -> None:
        """Replace the identity of a data directory."""
        replace_durably(data_dir / _FILE, self._body)

    @property
    def _body(self) -> bytes:
        return json_text(asdict(self)).encode()
