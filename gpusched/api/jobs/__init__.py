"""Which pods will a Job have, and which gang do they form? Its shape on the wire, the entity, and how one becomes the other."""
