"""Wire types of the HTTP API, one set for the server and the client. Imports core only."""
