"""What does a client learn of the server? Discovery documents and OpenAPI of versions 2 and 3."""
