"""Administrative actions in the audit log: the triggers are laid with the functions, see ``functions/admin.sql``."""

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Nothing but the number: a server must not run on a database that does not record them."""
