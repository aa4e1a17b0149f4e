"""The policies that ship with gpusched, one small file each, loaded through entry points."""
