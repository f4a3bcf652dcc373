"""Alembic's entry point: runs the migrations on the connection from ``storage.migrate``."""

from alembic import context

connection = context.config.attributes["connection"]
context.configure(connection=connection, version_table_schema="toolcrib", transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
