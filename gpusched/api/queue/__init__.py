"""What is a Queue? Its shape on the wire, the entity, and how one becomes the other."""
