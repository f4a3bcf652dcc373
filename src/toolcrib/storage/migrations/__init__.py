"""The schema's history. Tables change in numbered migrations; functions and policies are laid anew each time."""

from importlib.resources import files

from alembic import op


def run_script(name: str) -> None:
    """Runs a whole SQL file of ``sql/`` in the migration's transaction."""
    connection = op.get_bind().connection.driver_connection
    assert connection is not None
    # Past SQLAlchemy, which would read a literal % as a placeholder.
    connection.execute((files(__package__) / "sql" / name).read_bytes())
