"""For whom are others evicted? For gangs that found no room; not for one that would have a third gang evicted."""
