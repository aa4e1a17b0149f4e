"""How does a simulated cluster live? Sessions decide, their plans are applied to simulated objects, pods run and end, controllers replace them."""
