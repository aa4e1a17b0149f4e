"""What does every cluster hold, and how is it given back when deleted? Namespaces, roles, service accounts, the service kubernetes."""
