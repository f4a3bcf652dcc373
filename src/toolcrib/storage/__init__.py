"""PostgreSQL access: the connection pools, the migrations, and one module per aggregate. Queries are plain SQL."""
