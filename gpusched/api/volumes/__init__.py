"""Which volume may serve a claim, and on which nodes? PersistentVolumeClaims, PersistentVolumes and StorageClasses."""
