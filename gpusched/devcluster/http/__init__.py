"""What only HTTP needs: paths, negotiation, discovery documents, who may ask."""
