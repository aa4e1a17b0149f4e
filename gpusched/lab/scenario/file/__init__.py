"""How is a scenario's file read? One table of fields is both the reader and the JSON schema; everything that is wrong is reported at once."""
