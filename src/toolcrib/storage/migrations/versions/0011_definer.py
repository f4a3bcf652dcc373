"""The role that owns the SECURITY DEFINER functions. Functions and grants are laid anew at every upgrade.

A revision of its own, so that a server does not start on a database whose functions belong to a superuser.
"""

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Nothing but the number: see ``functions/zz_grants.sql``."""
