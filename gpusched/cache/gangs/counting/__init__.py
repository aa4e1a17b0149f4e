"""What do gangs hold and ask for, counted? The numbers of one gang, the sums of the gangs of a queue, and the sizes of pods."""
