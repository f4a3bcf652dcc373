"""PostgreSQL, and nothing else: the pool, the migrations, and one module per aggregate. SQL stays SQL here."""
