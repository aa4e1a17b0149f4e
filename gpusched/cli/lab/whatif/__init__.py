"""What does an admin ask, and what is answered? The command ``gpusched what-if``."""
