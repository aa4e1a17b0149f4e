"""What goes on showing the cluster while somebody looks? The page of ``console`` and the screen of ``top``, both fed by the view."""
