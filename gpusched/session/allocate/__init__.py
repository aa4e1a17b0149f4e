"""How does a gang get nodes? Its topology request gives candidate node sets, the minimum is solved as one problem or placed pod by pod, and what finds no nodes is told why, with numbers."""
