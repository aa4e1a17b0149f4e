"""How is the API server reached? Credentials, connections, requests and their answers, lines of a watch, and the server's clock."""
